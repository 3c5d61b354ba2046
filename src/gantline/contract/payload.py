"""The rules for payloads and results: small JSON data, never binary, never what JSON cannot say."""

import hashlib
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from gantline.contract.errors import InvalidInput, PayloadTooLarge

DEFAULT_PAYLOAD_LIMIT: Final = 64 * 1024
DEFAULT_RESULT_LIMIT: Final = 16 * 1024
MAX_DEPTH: Final = 64

_HARMLESS: Final = frozenset({str, int, bool, type(None)})

PayloadCheck = Callable[[str, Any], str | None]
"""A hook over (job type, decoded payload) that says why a payload is refused, or None. For PII."""


class EncodedPayload(NamedTuple):
    """A payload that was checked: as it is stored, and as the plain data of which that was made."""

    body: bytes
    data: Any


class EncodedResult(NamedTuple):
    """What is kept of a handler's return value; `omitted` says why nothing is, if so."""

    body: bytes | None
    omitted: str | None = None


def encode_payload(value: Any, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> EncodedPayload:
    """Encode a payload, or raise what the contract says about it.

    Takes anything msgspec can turn into JSON: plain data, Structs, dataclasses, TypedDicts.
    """
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
        _refuse_what_json_cannot_say(plain, depth=0)
        body = msgspec.json.encode(plain)
    except InvalidInput:
        raise
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise InvalidInput("The payload contains a lone surrogate, which is not text.") from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"The payload is not JSON data: {error}.", next_step="Pass identifiers and flags."
        ) from None
    check_size(body, limit)
    return EncodedPayload(body, plain)


def check_encoded(body: bytes, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> Any:
    """Hold a payload that arrived as JSON text to the same rules; return it decoded."""
    check_size(body, limit)
    try:
        value = msgspec.json.decode(body)
        # Read from JSON, it can only be too deep; and not even that with so few brackets.
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
            _refuse_what_json_cannot_say(value, depth=0)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The payload is not valid JSON: {error}.") from None
    return value


def encode_result(value: Any, *, limit: int = DEFAULT_RESULT_LIMIT) -> EncodedResult:
    """Encode a handler's return value. Never raises: a result must not undo finished work."""
    if value is None:
        return EncodedResult(None)
    try:
        body = encode_payload(value, limit=limit).body
    except PayloadTooLarge:
        return EncodedResult(None, f"larger than {limit} bytes")
    except Exception as error:  # a user's type may raise anything while encoded
        return EncodedResult(None, f"not JSON data ({type(error).__name__})")
    return EncodedResult(body)


def fingerprint(data: Any, payload_version: int) -> bytes:
    """Hash what makes two payloads the same: their data, whatever the order of keys or spacing."""
    try:
        canonical = msgspec.json.encode(data, order="deterministic")
    except TypeError:  # keys that JSON turns into text, as {1: "a"}, can be sorted only afterwards
        as_json = msgspec.json.decode(msgspec.json.encode(data))
        canonical = msgspec.json.encode(as_json, order="deterministic")
    return hashlib.sha256(b"%d:%b" % (payload_version, canonical)).digest()


def check_size(body: bytes, limit: int) -> None:
    if len(body) > limit:
        raise PayloadTooLarge(
            f"The payload has {len(body)} bytes; the limit is {limit}.",
            next_step="Store the data elsewhere and pass its identifier.",
        )


def _too_deep() -> InvalidInput:
    return InvalidInput(
        f"The payload is nested deeper than {MAX_DEPTH} levels.", next_step="Flatten it."
    )


def _refuse_what_json_cannot_say(value: Any, *, depth: int) -> None:
    """msgspec would turn bytes into base64 and NaN into null without a word: refuse both."""
    # In the order of how often they come; a match over classes takes twice as long.
    if isinstance(value, dict):
        _refuse_if_too_deep(depth)
        for key, item in value.items():
            if type(key) not in _HARMLESS:
                _refuse_what_json_cannot_say(key, depth=depth)
            if type(item) not in _HARMLESS:
                _refuse_what_json_cannot_say(item, depth=depth + 1)
    elif isinstance(value, (list, tuple)):
        _refuse_if_too_deep(depth)
        for item in value:
            if type(item) not in _HARMLESS:
                _refuse_what_json_cannot_say(item, depth=depth + 1)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidInput(
            "The payload contains bytes.",
            next_step="Store the data elsewhere and pass its identifier.",
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"The payload contains {value}, which JSON cannot say.")


def _refuse_if_too_deep(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise _too_deep()
