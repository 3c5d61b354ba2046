"""Request headers with rules of their own: each is read strictly, and refused by name."""

import re
from collections.abc import Iterable
from typing import Final
from uuid import UUID

import msgspec

from gantline.api.problems import invalid_parameter
from gantline.auth.hosts import name_in
from gantline.contract.job_id import uuid_text
from gantline.runtime import random_bytes

CORRELATION: Final = "x-correlation-id"
IDEMPOTENCY_KEY: Final = "idempotency-key"
ASYNC_REQUEST_ID: Final = "x-async-request-id"

# No blanks, quotes, commas or control characters: it is written into headers, logs and envelopes.
_CORRELATION: Final = re.compile(r"[A-Za-z0-9._:|/+=@~-]{1,128}")
# RFC 8941: a string is in quotes and escapes only the quote and the backslash.
_STRING: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE_KEY: Final = re.compile(r"[!#$%&'*+./:=?@^_`|~0-9A-Za-z-]+")
_KEY_LIMIT: Final = 255
_ETAG: Final = re.compile(r'(?:W/)?"[!#-~\x80-\xff]*"')
_WAIT: Final = re.compile(r'wait\s*=\s*"?(\d{1,9})"?', re.IGNORECASE)
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE: Final = re.compile(r"[ -~]{1,512}")


def merged(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """All headers by lower-case name; one that was sent twice is joined by a comma."""
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw]
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: ", ".join(texts) for name, texts in values.items()}


def new_correlation_id() -> str:
    """Only to distinguish requests: nothing is guarded by it, so it need not be hard to guess."""
    return random_bytes(16).hex()


def correlation_id(headers: dict[str, str]) -> str:
    """The caller's, or a new one; raise Refused for one that cannot be passed on."""
    given = headers.get(CORRELATION)
    if given is None:
        return new_correlation_id()
    if not _CORRELATION.fullmatch(given):
        raise invalid_parameter(
            "X-Correlation-Id", "must be 1 to 128 letters, digits or any of . _ : | / + = @ ~ -"
        )
    return given


def host(headers: dict[str, str]) -> str:
    """The name by which the API was called, without the port."""
    return name_in(headers.get("host", ""))


def is_from_elsewhere(headers: dict[str, str]) -> bool:
    """Whether a browser says that a page of another origin sent this; `null` is one too.

    Where it does not say the site, as over plain HTTP, the origin is compared with our own name.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host", "")


def has_key_or_token(headers: dict[str, str]) -> bool:
    """Whether it carries what no browser sends by itself, as it does with cookies."""
    return "x-api-key" in headers or headers.get("authorization", "")[:7].lower() == "bearer "


def idempotency_key(headers: dict[str, str]) -> str | None:
    """The key, as a structured string or bare."""
    given = headers.get(IDEMPOTENCY_KEY)
    if given is None:
        return None
    if match := _STRING.fullmatch(given.strip()):
        key = re.sub(r"\\(.)", r"\1", match[1])
    elif _BARE_KEY.fullmatch(given.strip()):
        key = given.strip()
    else:
        key = ""
    if not 1 <= len(key) <= _KEY_LIMIT:
        raise invalid_parameter(
            "Idempotency-Key", f"must be a string in quotes of 1 to {_KEY_LIMIT} characters"
        )
    return key


def async_request_id(headers: dict[str, str]) -> UUID | None:
    """The job id that the client has chosen."""
    given = headers.get(ASYNC_REQUEST_ID)
    return None if given is None else uuid_of("X-Async-Request-Id", given)


def uuid_of(name: str, text: str) -> UUID:
    """Read a UUID in its canonical form, the only one that has one spelling."""
    try:
        found = msgspec.convert(text, UUID)
    except msgspec.ValidationError:
        raise invalid_parameter(name, "is not a UUID") from None
    if uuid_text(found) != text.lower():
        raise invalid_parameter(name, "is not a UUID")
    return found


def wait_seconds(headers: dict[str, str], most: float) -> float | None:
    """How long `Prefer: wait=N` asks us to wait; None where it does not. RFC 7240: first counts."""
    prefer = headers.get("prefer")
    if prefer is None:
        return None
    for preference in prefer.split(","):
        if match := _WAIT.fullmatch(preference.partition(";")[0].strip()):
            return min(float(match[1]), most)
    return None


def entity_tags(headers: dict[str, str], name: str) -> list[str] | None:
    """The tags of If-Match or If-None-Match, in their quotes, weak ones with W/; or None.

    ["*"] is any.
    """
    given = headers.get(name)
    if given is None:
        return None
    if given.strip() == "*":
        return ["*"]
    tags = []
    for part in given.split(","):
        match = _ETAG.fullmatch(part.strip())
        if match is None:
            label = "If-Match" if name == "if-match" else "If-None-Match"
            raise invalid_parameter(label, "must be * or a list of entity tags in quotes")
        tags.append(match[0])
    return tags


def is_known(headers: dict[str, str], tag: str) -> bool:
    """Whether If-None-Match names this state; weak comparison, as for any GET."""
    tags = entity_tags(headers, "if-none-match")
    if tags is None:
        return False
    return tags == ["*"] or tag in [one.removeprefix("W/") for one in tags]


def trace_context(headers: dict[str, str]) -> dict[str, str] | None:
    """The W3C trace context; what is malformed is dropped, as the standard says."""
    parent = headers.get("traceparent")
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return None
    state = headers.get("tracestate")
    if state and _TRACESTATE.fullmatch(state):
        return {"traceparent": parent, "tracestate": state}
    return {"traceparent": parent}


def last_event_id(headers: dict[str, str], parameter: str | None) -> str | None:
    """The id of what an EventSource has heard last, as it was sent.

    One that is not ours is no error: an EventSource that is refused does not come back, and it
    sends what it was given by whatever was at this address before.
    """
    return headers.get("last-event-id", "") or parameter or None
