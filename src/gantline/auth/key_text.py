"""How an API key is written: `gl_<key id>_<secret><checksum>`.

The prefix lets scanners find one that was published, the checksum tells a typing error from a key
that is wrong, and keeps most of what is not a key away from the store.
"""

import re
import secrets
import zlib
from typing import Final

import msgspec

from gantline.contract.errors import InvalidCredentials

PREFIX: Final = "gl_"
PATTERN: Final = r"gl_[0-9a-z]{12}_[0-9A-Za-z]{49}"
"""For those who scan for secrets."""

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 12
_SECRET_BITS: Final = 256
_SECRET_LENGTH: Final = 43
_CHECKSUM_LENGTH: Final = 6
_WHOLE: Final = re.compile(PATTERN, re.ASCII)


class KeyText(msgspec.Struct, frozen=True):
    """A key as it was sent or is to be shown. Its text must not get into a log."""

    key_id: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyText({self.key_id}, secret hidden)"

    @property
    def text(self) -> str:
        body = f"{PREFIX}{self.key_id}_{self.secret}"
        return body + _checksum(body)


def new_key_id() -> str:
    return "".join(secrets.choice(_ID_DIGITS) for _ in range(_ID_LENGTH))


def new_key_text(key_id: str) -> KeyText:
    """Give a key a new secret of 256 random bits."""
    return KeyText(key_id, _written(secrets.randbits(_SECRET_BITS), _SECRET_LENGTH))


def read_key_text(text: str) -> KeyText:
    """Take a key apart; raise InvalidCredentials where it is none, or was not copied whole."""
    if not _WHOLE.fullmatch(text):
        raise _malformed("it has not the form of a key")
    body, checksum = text[:-_CHECKSUM_LENGTH], text[-_CHECKSUM_LENGTH:]
    if _checksum(body) != checksum:
        raise _malformed("its checksum is wrong")
    key_id, _, secret = body.removeprefix(PREFIX).partition("_")
    return KeyText(key_id, secret)


def _malformed(internal: str) -> InvalidCredentials:
    return InvalidCredentials(
        "This is not a whole API key.",
        next_step="Copy it again: it starts with gl_ and has 65 characters.",
        internal=internal,
    )


def _checksum(body: str) -> str:
    return _written(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _written(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
