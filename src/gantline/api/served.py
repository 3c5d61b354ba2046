"""How an operation reads what was sent to it: the query and the body, strictly."""

import re
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from gantline.api.body import Receive, check_json, decode, names_of, read_body
from gantline.api.call import Call
from gantline.api.documents import ErrorDetail
from gantline.api.operation import Operation
from gantline.api.problems import ApiCode, Refused, invalid_parameter
from gantline.contract.pointer import UNKNOWN, problem_from

_MOST_PARAMETERS: Final = 500
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Servable(Protocol):
    """What the front desk can serve."""

    @property
    def operation(self) -> Operation: ...

    async def read(self, call: Call, receive: Receive, *, limit: int) -> None:
        """Read what was sent; raise Refused for what the operation does not take."""
        ...


class Served:
    """An operation with what is made ready once: its decoder, and how its query is read."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._decoder: msgspec.json.Decoder[Any] | None = (
            None if operation.body is None else msgspec.json.Decoder(operation.body)
        )
        fields = msgspec.structs.fields(operation.query)
        self._known = names_of(operation.query)
        self._unknown = f"{UNKNOWN}; there are {', '.join(self._known) or 'none'}"
        self._lists = {one.encode_name for one in fields if one.default_factory is list}
        self._numbers = {one.encode_name for one in fields if isinstance(one.default, int)}
        self._nothing = operation.query()

    async def read(self, call: Call, receive: Receive, *, limit: int) -> None:
        call.query = self._query(call)
        if self._decoder is not None:
            check_json(call.headers)
            call.raw_body = await read_body(receive, call.headers, limit=limit)
            call.body = decode(self._decoder, call.raw_body)
        call.is_read = True

    def _query(self, call: Call) -> Any:
        """Read the query strictly: unknown, doubled and malformed parameters are refused."""
        text: bytes = call.scope["query_string"]
        if not text:
            return self._nothing
        call.parameters = parameters(text)
        values: dict[str, Any] = {}
        for name, value in call.parameters:
            if name not in self._known:
                raise invalid_parameter(name, self._unknown)
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise invalid_parameter(name, "is there twice")
            else:
                is_number = name in self._numbers and _NUMBER.fullmatch(value)
                values[name] = int(value) if is_number else value
        try:
            # Strictly, or a number would be an instant too.
            return msgspec.convert(values, self.operation.query)
        except msgspec.ValidationError as error:
            raise _bad_parameter(str(error)) from None


def parameters(text: bytes) -> list[tuple[str, str]]:
    """Read a query string, all of it or nothing."""
    try:
        return parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:  # UnicodeError is one too
        raise invalid_parameter("query", "cannot be read") from None


def _bad_parameter(message: str) -> Refused:
    pointer, detail = problem_from(message)
    name = pointer.removeprefix("#/").split("/")[0] or "query"
    error = ErrorDetail(parameter=name, detail=detail)
    return Refused(ApiCode.INVALID_REQUEST, f"{name}: {detail}.", errors=[error])
