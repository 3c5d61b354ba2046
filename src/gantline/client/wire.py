"""What both clients need of httpx2: how it is set up, and what its failures mean."""

import os
from typing import Any, Final

import httpx2
import msgspec

from gantline.client.address import read_address
from gantline.client.steps import Reply, Request, Unanswered
from gantline.contract.errors import InvalidInput
from gantline.contract.version import __version__

URL_VARIABLE: Final = "GANTLINE_URL"
KEY_VARIABLE: Final = "GANTLINE_API_KEY"

_CONNECT_SECONDS: Final = 5.0
_LARGEST_ANSWER: Final = 64 * 1024 * 1024
_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


class Setup(msgspec.Struct, frozen=True):
    """Where to, and the arguments of an httpx2 client. They hold the API key: never show them."""

    url: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return f"Setup({self.url}, arguments hidden)"


def setup(url: str | None, api_key: str | None) -> Setup:
    """Read what was given, else the environment; raise InvalidInput."""
    given = url or os.environ.get(URL_VARIABLE)
    if not given:
        raise InvalidInput("No server is named.", next_step=f"Give its URL, or set {URL_VARIABLE}.")
    address = read_address(given)
    headers = {
        "accept": "application/json, application/problem+json",
        # Not compressed, for a small answer could unfold into a large one.
        "accept-encoding": "identity",
        "user-agent": f"gantline-client/{__version__}",
    }
    if key := api_key or os.environ.get(KEY_VARIABLE):
        headers["authorization"] = f"Bearer {_checked(key)}"
    arguments = {
        "headers": headers,
        "follow_redirects": False,
        # A proxy of the environment could read what goes unencrypted to this host.
        "trust_env": address.is_encrypted,
    }
    return Setup(address.url, arguments)


def _checked(key: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key.strip():
        raise InvalidInput(
            "The API key has characters that no key has.",
            next_step="Is it all of the key, and nothing else?",
        )
    return key.strip()


def timeout_of(request: Request, *, silence_seconds: float | None = None) -> httpx2.Timeout:
    """`silence_seconds` for an event stream, which has no end of its own."""
    seconds = request.timeout_seconds
    short = min(_CONNECT_SECONDS, seconds)
    return httpx2.Timeout(seconds, connect=short, pool=short, read=silence_seconds or seconds)


def arguments_of(request: Request) -> dict[str, Any]:
    """All but method, URL and timeout."""
    return {
        "params": request.query or None,
        "headers": dict(request.headers),
        "content": request.body,
    }


def is_event_stream(response: httpx2.Response) -> bool:
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status_code == 200 and media_type == "text/event-stream"


class Reading:
    """An answer as its bytes come in, up to a size and an instant."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._body = bytearray()

    def add(self, part: bytes) -> Unanswered | None:
        """Take in some bytes; tell when there are too many."""
        self._body += part
        if len(self._body) > _LARGEST_ANSWER:
            return Unanswered(reason="the answer is far too large", may_have_arrived=True)
        return None

    def reply(self) -> Reply:
        headers = {name.lower(): value for name, value in self._response.headers.items()}
        return Reply(status=self._response.status_code, headers=headers, body=bytes(self._body))


def too_slow(request: Request) -> Unanswered:
    reason = f"it was not all there after {request.timeout_seconds:g} s"
    return Unanswered(reason=reason, may_have_arrived=True)


def unanswered(error: Exception) -> Unanswered:
    """What an error of httpx2 means. Its text is used where it is known to tell no secret."""
    if isinstance(error, _NEVER_SENT):
        why = f" ({error})" if str(error) else " in time"
        where = error.request.url.netloc.decode("ascii")
        return Unanswered(reason=f"{where} cannot be reached{why}", may_have_arrived=False)
    if isinstance(error, httpx2.TimeoutException):
        return Unanswered(reason="it took too long", may_have_arrived=True)
    return Unanswered(
        reason=f"the connection broke ({type(error).__name__})", may_have_arrived=True
    )
