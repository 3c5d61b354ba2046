"""The rules for payloads and results: small JSON data, never binary, never what JSON cannot say."""

import hashlib
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from gantline.contract.errors import InvalidInput, InvalidPayload, PayloadTooLarge, Problem
from gantline.contract.pointer import pointer_to

DEFAULT_PAYLOAD_LIMIT: Final = 64 * 1024
DEFAULT_RESULT_LIMIT: Final = 16 * 1024
MAX_DEPTH: Final = 64

_HARMLESS: Final = frozenset({str, int, bool, type(None)})
_PASSED_ON: Final = (bytes, bytearray, memoryview, InvalidPayload)
_ELSEWHERE: Final = "Store the data elsewhere and pass its identifier."

PayloadCheck = Callable[[str, Any], str | None]
"""A hook over (job type, decoded payload) that says why a payload is refused, or None. For PII."""


class EncodedPayload(NamedTuple):
    """A payload that was checked: as it is stored, and as the plain data of which that was made."""

    body: bytes
    data: Any


def no_json(value: Any) -> InvalidPayload:
    """What stands in plain data for an object without a form in JSON, until its path is known."""
    return _refused("#", f"is not JSON data: a {type(value).__name__}")


def encode_payload(
    value: Any,
    *,
    limit: int = DEFAULT_PAYLOAD_LIMIT,
    encode_other: Callable[[Any], Any] = no_json,
) -> EncodedPayload:
    """Encode a payload, or raise what the contract says about it.

    Takes anything msgspec can turn into JSON: plain data, Structs, dataclasses, TypedDicts.
    `encode_other` makes plain data of any other object, or returns why it cannot.
    """
    try:
        plain = msgspec.to_builtins(value, builtin_types=_PASSED_ON, enc_hook=encode_other)
        _refuse_what_json_cannot_say(plain, ())
        body = msgspec.json.encode(plain)
    except InvalidInput:
        raise
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise _refused("#", "contains a lone surrogate, which is not text") from None
    except (TypeError, ValueError) as error:
        raise _refused("#", f"is not JSON data: {error}") from None
    check_size(body, limit)
    return EncodedPayload(body, plain)


def check_encoded(body: bytes, *, limit: int = DEFAULT_PAYLOAD_LIMIT) -> Any:
    """Hold a payload that arrived as JSON text to the same rules; return it decoded."""
    check_size(body, limit)
    try:
        value = msgspec.json.decode(body)
        # Read from JSON, it can only be too deep; and not even that with so few brackets.
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
            _refuse_what_json_cannot_say(value, ())
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The payload is not valid JSON: {error}.") from None
    return value


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
            next_step=_ELSEWHERE,
        )


def _too_deep() -> InvalidPayload:
    return _refused("#", f"is nested deeper than {MAX_DEPTH} levels", next_step="Flatten it.")


def _refuse_what_json_cannot_say(value: Any, path: tuple[Any, ...]) -> None:
    """msgspec would turn bytes into base64 and NaN into null without a word: refuse both."""
    if len(path) >= MAX_DEPTH and isinstance(value, (dict, list, tuple)):
        raise _too_deep()
    # In the order of how often they come; a match over classes takes twice as long.
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                _refuse_what_json_cannot_say(key, path)
                if str(key) in value:
                    raise _refused(pointer_to(path), f"has the key {key!r} twice in JSON")
            if type(item) not in _HARMLESS:
                _refuse_what_json_cannot_say(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if type(item) not in _HARMLESS:
                _refuse_what_json_cannot_say(item, (*path, index))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        raise _refused(pointer_to(path), "contains bytes", next_step=_ELSEWHERE)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _refused(pointer_to(path), f"contains {value}, which JSON cannot say")
    elif isinstance(value, InvalidPayload):
        pointer, detail = value.problems[0]
        raise _refused(pointer_to(path) + pointer[1:], detail)


def _refused(pointer: str, detail: str, *, next_step: str = "") -> InvalidPayload:
    where = "" if pointer == "#" else f", at {pointer}"
    return InvalidPayload(
        f"The payload {detail}{where}.", [Problem(pointer, detail)], next_step=next_step
    )
