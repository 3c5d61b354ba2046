"""Reading a request's body: bounded in size and depth, before anything is made of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from gantline.api.documents import ErrorDetail
from gantline.api.problems import ApiCode, Refused
from gantline.contract.errors import Code
from gantline.contract.pointer import UNKNOWN, problem_from

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

_CHARSETS: Final = frozenset({"", "charset=utf-8", 'charset="utf-8"'})


class ClientGone(Exception):
    """The client hung up while it was sending or waiting; there is nobody to answer."""


async def read_body(receive: Receive, headers: dict[str, str], *, limit: int) -> bytes:
    """Read all of the body; raise Refused as soon as it is known to be too large."""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    message = await receive()
    first: bytes = message.get("body", b"")
    parts, size = [first], len(first)
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return first if len(parts) == 1 else b"".join(parts)
        message = await receive()
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)


def check_json(headers: dict[str, str]) -> None:
    """Refuse a body that is not declared to be JSON in UTF-8."""
    media_type, _, parameters = headers.get("content-type", "").partition(";")
    if (
        media_type.strip().lower() != "application/json"
        or parameters.strip().lower() not in _CHARSETS
    ):
        raise Refused(
            ApiCode.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json in UTF-8."
        )
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(ApiCode.UNSUPPORTED_MEDIA_TYPE, "The body must be sent as it is, not packed.")


def decode(decoder: msgspec.json.Decoder[Any], body: bytes, *, within: str = "#") -> Any:
    """Decode and validate; raise Refused that says where it is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        pointer, detail = problem_from(str(error))
        if detail == UNKNOWN and pointer.count("/") == 1:
            detail = f"{UNKNOWN}; there are {', '.join(names_of(decoder.type))}"
        pointer = within + pointer[1:]
        raise Refused(
            Code.VALIDATION_ERROR,
            f"{pointer}: {detail}.",
            errors=[ErrorDetail(pointer=pointer, detail=detail)],
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(Code.INVALID_FORMAT, f"The body is not JSON: {_plain(error)}.") from None
    except RecursionError:
        raise Refused(Code.INVALID_FORMAT, "The body is nested too deeply.") from None


def names_of(struct: type[msgspec.Struct]) -> list[str]:
    """The names that its fields have in JSON."""
    return [one.encode_name for one in msgspec.structs.fields(struct)]


def _plain(error: Exception) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _too_large(limit: int) -> Refused:
    return Refused(ApiCode.BODY_TOO_LARGE, f"The body may have {limit} bytes, and no more.")
