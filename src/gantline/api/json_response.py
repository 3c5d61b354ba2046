"""Documents as Starlette's responses."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from starlette.responses import Response

Headers = Mapping[str, str]

NO_STORE: Final = "no-store"
PRIVATE: Final = "private, no-cache"
_NONE: Final[Headers] = MappingProxyType({})

encode: Final = msgspec.json.Encoder().encode


class JsonResponse(Response):
    """A document, encoded by msgspec. Made without `Response.__init__`: 1.4 instead of 2.5 µs."""

    def __init__(
        self,
        status: int,
        document: Any,
        headers: Headers = _NONE,
        *,
        cache: str = NO_STORE,
        media_type: bytes = b"application/json",
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = encode(document)
        self.raw_headers = [
            (b"content-length", b"%d" % len(self.body)),
            (b"content-type", media_type),
            (b"cache-control", cache.encode("latin-1")),
            *[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        ]
