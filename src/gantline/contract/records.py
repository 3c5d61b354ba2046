"""Records: small settings-like side data, namespaced, versioned, with compare-and-set."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.text import is_storable

SESSIONS: Final = "sessions"
"""The records of the worker processes that live, by session id: only these may claim."""

_FIRST_SURROGATE: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000
_LAST_POINT: Final = 0x10FFFF


class Record(msgspec.Struct, frozen=True):
    """One record as it stands.

    `version` is at least 1 and grows with every write; a key never has the same one twice, not even
    after it was deleted or has expired. `replaced` is the version that this one has replaced,
    0 where there was none.
    """

    namespace: str
    key: str
    value: bytes
    version: int
    expires_at: datetime | None = None
    replaced: int = 0


class RecordWrite(msgspec.Struct, frozen=True):
    """Put a value, or delete it when `value` is None, if `expected` is still the version.

    `expected` 0 means there is none yet, None means whatever is there. A put whose answer was lost
    may be repeated: it counts as applied when the record already is what it would have made. So the
    value of a lock must name its owner. With a time to live of zero or less it is gone at once.
    """

    namespace: str
    key: str
    value: bytes | None
    expected: int | None = None
    time_to_live: timedelta | None = None

    def __post_init__(self) -> None:
        if not is_storable(self.namespace + self.key):
            raise InvalidInput("The name of a record contains a NUL or a lone surrogate.")


def write_is_allowed(write: RecordWrite, current: Record | None) -> bool:
    """Compare for compare-and-set; `current` is the record unless it has expired."""
    version = current.version if current else 0
    return write.expected in (None, version) or is_repeat(write, current)


def is_repeat(write: RecordWrite, current: Record | None) -> bool:
    """Whether the same caller has made this write before, and its answer was lost."""
    if write.expected is None:
        return False
    if current is None:
        return write.value is None
    return current.replaced == write.expected and current.value == write.value


def prefix_end(prefix: str) -> str | None:
    """The first key, in the order of code points, that is after all keys of a prefix.

    None where there is no such key. A store that stops there does not read what belongs to others.
    """
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if point == _FIRST_SURROGATE:
            point = _AFTER_SURROGATES
        if point <= _LAST_POINT:
            return prefix[: length - 1] + chr(point)
    return None
