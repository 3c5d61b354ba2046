"""Typed payloads: one codec for msgspec Structs, dataclasses, TypedDicts, plain data and pydantic.

What a codec encodes has been validated, so that a bad payload is refused where it is submitted.
Results are encoded by the same codecs.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from gantline.contract.errors import InvalidInput, InvalidPayload, Problem, ResultNotStorable
from gantline.contract.payload import (
    DEFAULT_PAYLOAD_LIMIT,
    DEFAULT_RESULT_LIMIT,
    EncodedPayload,
    encode_payload,
    no_json,
)
from gantline.contract.pointer import pointer_to, problem_from

T = TypeVar("T")

_MOST_PROBLEMS: Final = 20
_NOTHING: Final = EncodedPayload(b"null", None)
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
    """Choose the codec for the annotation of a payload or a result."""
    if _is_pydantic(annotation):
        return PydanticCodec(annotation)
    try:
        return MsgspecCodec(annotation)
    except InvalidInput:  # as for a union of models, which only pydantic can distinguish
        if _mentions_pydantic(annotation):
            return PydanticCodec(annotation)
        raise


def encode_result(value: Any, codec: Codec[Any] | None) -> tuple[bytes | None, str | None]:
    """Encode what a handler returned; raise ResultNotStorable.

    Returns what is stored, and why nothing is: without a codec the result is omitted.
    """
    if codec is None:
        return None, "its type omits it"
    try:
        body, data = codec.encode(value, limit=sys.maxsize)
    except InvalidPayload as error:
        why = " ".join(error.problems[0])
        raise ResultNotStorable(f"The result cannot be stored: {why}.") from None
    except BaseException as error:  # a user's type may raise anything while encoded
        why = f"# is not JSON data ({type(error).__name__})"
        raise ResultNotStorable(f"The result cannot be stored: {why}.") from error
    if (size := len(body)) > DEFAULT_RESULT_LIMIT:
        raise ResultNotStorable(
            f"The result has {size} bytes; the limit is {DEFAULT_RESULT_LIMIT}."
        )
    return None if data is None else body, None


class _FieldNames:
    """What both codecs know of the fields of a type."""

    def __init__(self, annotation: Any) -> None:
        self._type = annotation
        found = _typed_fields(annotation)
        self.fields = None if found is None else frozenset(found)
        by_json_name = {encoded: (encoded, kind) for encoded, kind in (found or {}).values()}
        self._text_fields = by_json_name | (found or {})

    def json_name(self, name: str) -> str | None:
        found = self._text_fields.get(name)
        return found[0] if found else None


class MsgspecCodec(_FieldNames, Generic[T]):
    """For all that msgspec knows. Encoding is followed by decoding, which validates."""

    def __init__(self, annotation: Any) -> None:
        super().__init__(annotation)
        try:
            self._decoder = msgspec.json.Decoder(annotation, dec_hook=_decode_other)
        except TypeError as error:
            raise InvalidInput(
                f"{getattr(annotation, '__name__', annotation)} cannot be a payload: {error}.",
                next_step="Use a msgspec Struct, a pydantic model, a dataclass or a TypedDict.",
            ) from None

    def encode(self, payload: T, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> EncodedPayload:
        if payload is None and self._type is Any:
            return _NOTHING  # as the result of most jobs
        encoded = encode_payload(payload, limit=limit, encode_other=_encode_other)
        self.decode(encoded.body)
        return encoded

    def decode(self, body: bytes) -> T:
        try:
            payload: T = self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _not_valid(error) from None
        return payload

    def schema(self) -> dict[str, Any]:
        definitions: dict[str, Any] = {}

        def of_other(kind: Any) -> dict[str, Any]:
            if not _is_pydantic(kind):
                return {"title": kind.__name__}  # an empty one is an error to msgspec
            schema = _pydantic_codec(kind).schema()
            definitions.update(schema.pop("$defs", {}))
            return schema

        schema = msgspec.json.schema(self._type, schema_hook=of_other)
        definitions |= schema.get("$defs", {})
        return schema | {"$defs": definitions} if definitions else schema  # referred to from there

    def from_text(self, name: str, texts: Sequence[str]) -> tuple[str, Any] | None:
        if self._type in _OPEN:
            return name, _one_or_many(texts)
        if (found := self._text_fields.get(name)) is None:
            return None
        encoded, annotation = found
        try:
            read = msgspec.convert(_one_or_many(texts, annotation), annotation, strict=False)
        except (msgspec.ValidationError, ValueError) as error:  # an instant in the year 10000
            pointer, detail = problem_from(str(error))
            path = pointer_to([encoded]) + pointer[1:]
            raise InvalidPayload(
                f"The payload is not valid: {path} {detail}.", [Problem(path, detail)]
            ) from None
        return encoded, msgspec.to_builtins(read)


class PydanticCodec(_FieldNames, Generic[T]):
    """For pydantic models and dataclasses, and unions of them.

    pydantic is imported only here, and only when used.
    """

    def __init__(self, annotation: Any) -> None:
        from pydantic import TypeAdapter

        super().__init__(annotation)
        self._adapter: Any = TypeAdapter(annotation)

    def encode(self, payload: T, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> EncodedPayload:
        if isinstance(self._type, type) and not isinstance(payload, self._type):
            detail = f"must be a {self._type.__name__}, not a {type(payload).__name__}"
            raise InvalidPayload(f"The payload is not valid: it {detail}.", [Problem("#", detail)])
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
            with suppress(type(error)):  # to validate says more than to dump: it names the field
                self.decode(self._adapter.dump_json(payload, by_alias=by_alias, warnings="none"))
            raise _refused_by_pydantic(error) from None
        return encode_payload(plain, limit=limit)

    def decode(self, body: bytes) -> T:
        try:
            return cast("T", self._adapter.validate_json(body))
        except ValueError as error:
            raise _refused_by_pydantic(error) from None

    def schema(self) -> dict[str, Any]:
        return dict(self._adapter.json_schema())

    def from_text(self, name: str, texts: Sequence[str]) -> tuple[str, Any] | None:
        """pydantic reads numbers and the like out of text by itself."""
        if (found := self._text_fields.get(name)) is None:
            return None
        encoded, annotation = found
        return encoded, _one_or_many(texts, annotation)


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "model_json_schema")


def _mentions_pydantic(annotation: Any) -> bool:
    return _is_pydantic(annotation) or any(map(_mentions_pydantic, get_args(annotation)))


_pydantic_codec: Callable[[Any], PydanticCodec[Any]] = lru_cache(maxsize=256)(PydanticCodec)


def _encode_other(value: Any) -> Any:
    """Make plain data of a pydantic model inside data that msgspec encodes."""
    if not _is_pydantic(type(value)):
        return no_json(value)
    try:
        return _pydantic_codec(type(value)).encode(value, limit=sys.maxsize).data
    except InvalidPayload as error:
        return error


def _decode_other(kind: Any, plain: Any) -> Any:
    """Make a pydantic model of plain data; msgspec itself refuses what is not of its type."""
    if not _is_pydantic(kind):
        return plain
    return _pydantic_codec(kind).decode(msgspec.json.encode(plain))


def _not_valid(error: Exception) -> InvalidPayload:
    """Say what msgspec found, or what a model inside of the payload did."""
    found = problem_from(str(error))
    if not isinstance(inner := error.__cause__, InvalidPayload):
        return InvalidPayload(f"The payload is not valid: {error}.", [found])
    problems = [Problem(found.pointer + one.pointer[1:], one.detail) for one in inner.problems]
    why = "; ".join(map(" ".join, problems))
    return InvalidPayload(f"The payload is not valid: {why}.", problems)


def _typed_fields(annotation: Any) -> dict[str, tuple[str, Any]] | None:
    """Fields by their names, with the name in JSON and the type."""
    if get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    if (models := getattr(annotation, "__pydantic_fields__", None)) is not None:
        return {name: (field.alias or name, field.annotation) for name, field in models.items()}
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        fields = msgspec.structs.fields(annotation)
        return {one.name: (one.encode_name, one.type) for one in fields}
    if dataclasses.is_dataclass(annotation) or is_typeddict(annotation):
        return {name: (name, hint) for name, hint in get_type_hints(annotation).items()}
    return None


def _one_or_many(texts: Sequence[str], annotation: Any = None) -> Any:
    is_many = get_origin(annotation) in (list, tuple, set, frozenset)
    return list(texts) if is_many or len(texts) != 1 else texts[0]


def _refused_by_pydantic(error: Exception) -> InvalidPayload:
    """pydantic's texts quote the input; the first message and its location say enough."""
    details = getattr(error, "errors", None)
    found: list[Any] = [{"loc": (), "msg": str(error).partition("\n")[0]}]
    if callable(details):
        found = details(include_input=False, include_url=False)[:_MOST_PROBLEMS]
    problems = [Problem(pointer_to(one["loc"]), str(one["msg"])) for one in found]
    path = ".".join(map(str, found[0]["loc"]))
    why = problems[0].detail + (f" - at `$.{path}`" if path else "")
    return InvalidPayload(f"The payload is not valid: {why}.", problems)
