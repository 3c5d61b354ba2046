"""Parsing what was sent to an operation: the query and the body, strictly."""

import re
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from gantline.api.call import Call
from gantline.api.documents import ErrorDetail
from gantline.api.problems import ApiCode, Refused, invalid_parameter
from gantline.api.requests import JobToSubmit, Sent
from gantline.contract.errors import Code
from gantline.contract.pointer import MISSING, UNKNOWN, problem_from

_MOST_PARAMETERS: Final = 500
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_FLAGS: Final = {"true": True, "false": False}
_CHARSETS: Final = frozenset({"", "charset=utf-8", 'charset="utf-8"'})


# -- the query ------------------------------------------------------------------------------------


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


class _Fields(NamedTuple):
    """How the fields of a query are read."""

    known: list[str]
    lists: set[str]
    numbers: set[str]
    flags: set[str]
    default: Sent


@cache
def _fields(query: type[Sent]) -> _Fields:
    fields = msgspec.structs.fields(query)
    return _Fields(
        known=_names_of(query),
        lists={one.encode_name for one in fields if one.default_factory is list},
        numbers={one.encode_name for one in fields if type(one.default) is int},
        flags={one.encode_name for one in fields if type(one.default) is bool},
        default=query(),
    )


def read_query(call: Call, query: type[Sent]) -> Any:
    """Read the query strictly: unknown, doubled and malformed parameters are refused."""
    fields, text = _fields(query), call.scope["query_string"]
    if not text:
        return fields.default
    call.parameters = parameters(text)
    values: dict[str, Any] = {}
    for name, value in call.parameters:
        if name not in fields.known:
            known = ", ".join(fields.known) or "none"
            raise invalid_parameter(name, f"{UNKNOWN}; there are {known}")
        if name in fields.lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise invalid_parameter(name, "is there twice")
        else:
            values[name] = _parsed(name, value, fields)
    try:
        # Strictly, or a number would be an instant too.
        return msgspec.convert(values, query)
    except msgspec.ValidationError as error:
        pointer, detail = problem_from(str(error))
        name = pointer.removeprefix("#/").split("/")[0] or "query"
        found = ErrorDetail(parameter=name, detail=detail)
        raise Refused(ApiCode.INVALID_REQUEST, f"{name}: {detail}.", errors=[found]) from None


def _parsed(name: str, value: str, fields: _Fields) -> Any:
    """What has the look of a number or a flag; the rest is refused where it is converted."""
    if name in fields.flags:
        return _FLAGS.get(value, value)
    return int(value) if name in fields.numbers and _NUMBER.fullmatch(value) else value


# -- the body -------------------------------------------------------------------------------------


def check_json(headers: dict[str, str]) -> None:
    """Refuse a body that is not declared to be JSON in UTF-8."""
    if headers.get("content-type") == "application/json" and "content-encoding" not in headers:
        return
    media_type, _, options = headers.get("content-type", "").partition(";")
    if media_type.strip().lower() != "application/json" or options.strip().lower() not in _CHARSETS:
        raise Refused(
            ApiCode.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json in UTF-8."
        )
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(ApiCode.UNSUPPORTED_MEDIA_TYPE, "The body must be sent as it is, not packed.")


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(type_: Any, body: bytes, *, within: str = "#") -> Any:
    """Decode and validate; raise Refused that says where it is wrong."""
    try:
        return _decoder(type_).decode(body)
    except msgspec.ValidationError as error:
        pointer, detail = problem_from(str(error))
        if pointer.count("/") == 1 and (detail == UNKNOWN or _may_be_misspelt(type_, detail)):
            detail = f"{detail}; there are {', '.join(_names_of(type_))}"
        pointer = within + pointer[1:]
        raise Refused(
            Code.VALIDATION_ERROR,
            f"{pointer}: {detail}.",
            errors=[ErrorDetail(pointer=pointer, detail=detail)],
        ) from None
    except UnicodeDecodeError:
        raise Refused(Code.INVALID_FORMAT, "The body is not JSON: it is not UTF-8.") from None
    except msgspec.DecodeError as error:
        raise Refused(Code.INVALID_FORMAT, f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise Refused(Code.INVALID_FORMAT, "The body is nested too deeply.") from None


def _may_be_misspelt(type_: Any, detail: str) -> bool:
    """Whether something is missing where an unknown name is no error by itself."""
    return detail == MISSING and type_ is JobToSubmit


def _names_of(struct: type[msgspec.Struct]) -> list[str]:
    """The names that its fields have in JSON."""
    return [one.encode_name for one in msgspec.structs.fields(struct)]
