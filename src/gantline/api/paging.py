"""Paging: the opaque cursor, and the link to the next page."""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, Protocol
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.json_response import JsonResponse
from gantline.api.problems import Refused, invalid_parameter
from gantline.contract.clock import LAST_MICROS, from_micros, to_micros
from gantline.contract.query import Cursor

# Version, microseconds since 1970, job id.
_LAYOUT: Final = struct.Struct(">Bq16s")
_VERSION: Final = 1
_FIRST_MICROS: Final = -62_135_596_800_000_000  # the year 1


def cursor_text(cursor: Cursor) -> str:
    return pack(_LAYOUT.pack(_VERSION, to_micros(cursor.created_at), cursor.job_id.bytes))


def read_cursor(text: str) -> Cursor:
    """Raise Refused for what is no cursor of ours, or of another version."""
    try:
        version, micros, job_id = _LAYOUT.unpack(unpack(text))
    except struct.error:
        raise bad_cursor() from None
    if version != _VERSION or not _FIRST_MICROS <= micros <= LAST_MICROS:
        raise bad_cursor()
    return Cursor(from_micros(micros), UUID(bytes=job_id))


def name_cursor_text(name: str) -> str:
    """A cursor over names."""
    return pack(bytes([_VERSION]) + name.encode())


def read_name_cursor(text: str) -> str:
    """Raise Refused for what is no cursor over names."""
    packed = unpack(text)
    try:
        name = packed[1:].decode()
    except ValueError:
        raise bad_cursor() from None
    if packed[:1] != bytes([_VERSION]):
        raise bad_cursor()
    return name


def pack(content: bytes) -> str:
    """A cursor as it is shown."""
    return urlsafe_b64encode(content).decode().rstrip("=")


def unpack(text: str) -> bytes:
    """What a cursor holds; raise Refused for what was never packed."""
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise bad_cursor() from None
    if pack(content) != text:  # base64 ignores what it does not know
        raise bad_cursor()
    return content


def bad_cursor() -> Refused:
    return invalid_parameter("cursor", "is not one that this API gave; start without it")


class Paged(Protocol):
    """A document with a part of a list."""

    @property
    def next_cursor(self) -> str | None: ...


def page_response(call: Call, page: Paged) -> Response:
    """Answer a page, with a link to the next one of the same list."""
    if page.next_cursor is None:
        return JsonResponse(200, page)
    kept = [(name, value) for name, value in call.parameters if name != "cursor"]
    query = urlencode([*kept, ("cursor", page.next_cursor)])
    return JsonResponse(200, page, {"link": f'<{call.path}?{query}>; rel="next"'})
