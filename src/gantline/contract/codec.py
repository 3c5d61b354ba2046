"""Typed payloads: one codec for msgspec Structs, dataclasses, TypedDicts, plain data and pydantic.

What a codec encodes has been validated, so that a bad payload is refused where it is submitted.
"""

import dataclasses
from collections.abc import Sequence
from typing import (
    Any,
    Final,
    Generic,
    Protocol,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from gantline.contract.errors import InvalidInput, InvalidPayload, Problem
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT, EncodedPayload, encode_payload
from gantline.contract.pointer import pointer_to, problem_from

T = TypeVar("T")

_MOST_PROBLEMS: Final = 20
# Payloads that have whatever fields are sent.
_OPEN: Final = (Any, dict, dict[str, Any], dict[str, str])


class Codec(Protocol[T]):
    """Between a payload as handlers see it and the JSON that travels."""

    @property
    def fields(self) -> frozenset[str] | None:
        """The names of the payload's fields, for templates; None where they are not known."""
        ...

    def encode(self, payload: T, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> EncodedPayload:
        """Validate and encode; raise InvalidInput."""
        ...

    def decode(self, body: bytes) -> T:
        """Decode and validate; raise InvalidInput."""
        ...

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the payload."""
        ...

    def json_name(self, name: str) -> str | None:
        """The name in JSON of the field that has this name; None where there is no such field."""
        ...

    def from_text(self, name: str, texts: Sequence[str]) -> tuple[str, Any] | None:
        """Read a field out of text, as from a URL: its name in JSON and its value as plain data.

        None where there is no such field; raise InvalidPayload where the text cannot be it.
        """
        ...


def codec_for(annotation: Any) -> Codec[Any]:
    """Choose the codec for a payload's annotation."""
    if hasattr(annotation, "__pydantic_core_schema__") or hasattr(annotation, "model_json_schema"):
        return PydanticCodec(annotation)
    return MsgspecCodec(annotation)


class MsgspecCodec(Generic[T]):
    """For all that msgspec knows. Encoding is followed by decoding, which validates."""

    def __init__(self, annotation: Any) -> None:
        self._type = annotation
        try:
            self._decoder = msgspec.json.Decoder(annotation)
        except TypeError as error:
            raise InvalidInput(
                f"{annotation!r} cannot be the type of a payload: {error}.",
                next_step="Use a msgspec Struct, a pydantic model, a dataclass or a TypedDict.",
            ) from None
        found = _typed_fields(annotation)
        self.fields = None if found is None else frozenset(found)
        by_json_name = {encoded: (encoded, kind) for encoded, kind in (found or {}).values()}
        self._text_fields = None if found is None else by_json_name | found

    def encode(self, payload: T, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> EncodedPayload:
        encoded = encode_payload(payload, limit=limit)
        self.decode(encoded.body)
        return encoded

    def decode(self, body: bytes) -> T:
        try:
            return cast("T", self._decoder.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidPayload(
                f"The payload is not valid: {error}.", [problem_from(str(error))]
            ) from None

    def schema(self) -> dict[str, Any]:
        return msgspec.json.schema(self._type)

    def json_name(self, name: str) -> str | None:
        found = (self._text_fields or {}).get(name)
        return found[0] if found else None

    def from_text(self, name: str, texts: Sequence[str]) -> tuple[str, Any] | None:
        if self._text_fields is None:
            return (name, _one_or_many(texts)) if self._type in _OPEN else None
        if (found := self._text_fields.get(name)) is None:
            return None
        encoded, annotation = found
        value = list(texts) if _is_many(annotation) else _one_or_many(texts)
        try:
            read = msgspec.convert(value, annotation, strict=False)
        except msgspec.ValidationError as error:
            pointer, detail = problem_from(str(error))
            path = pointer_to([encoded]) + pointer[1:]
            raise InvalidPayload(
                f"The payload is not valid: {path} {detail}.", [Problem(path, detail)]
            ) from None
        return encoded, msgspec.to_builtins(read)


class PydanticCodec(Generic[T]):
    """For pydantic models and dataclasses. pydantic is imported only here, and only when used."""

    def __init__(self, annotation: Any) -> None:
        from pydantic import TypeAdapter

        self._type: type = annotation
        self._adapter: Any = TypeAdapter(annotation)
        self.fields = frozenset(annotation.__pydantic_fields__)

    def encode(self, payload: T, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> EncodedPayload:
        if not isinstance(payload, self._type):
            raise InvalidInput(
                f"The payload is not valid: it must be a {self._type.__name__}, "
                f"not a {type(payload).__name__}."
            )
        encoded = self._dumped(payload, limit, by_alias=True)
        if not self._reads_back(encoded, payload):
            # An alias may be for writing only, and then reading needs the name.
            by_name = self._dumped(payload, limit, by_alias=False)
            if self._reads_back(by_name, payload):
                return by_name
            self.decode(encoded.body)
        return encoded

    def _reads_back(self, encoded: EncodedPayload, payload: T) -> bool:
        try:
            return bool(self.decode(encoded.body) == payload)
        except InvalidPayload:
            return False

    def _dumped(self, payload: T, limit: int, *, by_alias: bool) -> EncodedPayload:
        try:
            plain = self._adapter.dump_python(
                payload, mode="json", by_alias=by_alias, warnings="error"
            )
        except Exception as error:
            raise InvalidInput(f"The payload is not valid: {_first_line(error)}.") from None
        return encode_payload(plain, limit=limit)

    def decode(self, body: bytes) -> T:
        try:
            return cast("T", self._adapter.validate_json(body))
        except ValueError as error:
            raise InvalidPayload(
                f"The payload is not valid: {_first_line(error)}.", _problems(error)
            ) from None

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self._adapter.json_schema()
        return schema

    def json_name(self, name: str) -> str | None:
        for own, field in self._type.__pydantic_fields__.items():  # type: ignore[attr-defined]  # of every pydantic class
            if name in (own, field.alias):
                alias: str = field.alias or own
                return alias
        return None

    def from_text(self, name: str, texts: Sequence[str]) -> tuple[str, Any] | None:
        """pydantic reads numbers and the like out of text by itself."""
        for own, field in self._type.__pydantic_fields__.items():  # type: ignore[attr-defined]  # of every pydantic class
            if name in (own, field.alias):
                many = _is_many(field.annotation)
                return field.alias or own, list(texts) if many else _one_or_many(texts)
        return None


def _typed_fields(annotation: Any) -> dict[str, tuple[str, Any]] | None:
    """Fields by their names, with the name in JSON and the type."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        fields = msgspec.structs.fields(annotation)
        return {one.name: (one.encode_name, one.type) for one in fields}
    if dataclasses.is_dataclass(annotation) or is_typeddict(annotation):
        return {name: (name, hint) for name, hint in get_type_hints(annotation).items()}
    return None


def _is_many(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple, set, frozenset)


def _one_or_many(texts: Sequence[str]) -> Any:
    return texts[0] if len(texts) == 1 else list(texts)


def _problems(error: Exception) -> list[Problem]:
    details = getattr(error, "errors", None)
    found = details(include_input=False, include_url=False) if callable(details) else []
    return [Problem(pointer_to(one["loc"]), str(one["msg"])) for one in found[:_MOST_PROBLEMS]]


def _first_line(error: Exception) -> str:
    """pydantic's texts quote the input; the first line and the first location say enough."""
    details = getattr(error, "errors", None)
    if callable(details):
        first = details(include_input=False, include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        return f"{first['msg']} - at `$.{path}`" if path else str(first["msg"])
    return str(error).splitlines()[0]
