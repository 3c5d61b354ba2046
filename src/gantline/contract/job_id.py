"""Job ids: where they come from, and how they are written."""

from uuid import UUID

import msgspec

from gantline.runtime import random_bytes, time_ns

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62


def new_job_id() -> UUID:
    """Make a UUIDv7 (RFC 9562): ids of one process sort by the time they were made.

    The 12 bits after the milliseconds hold the fraction of the millisecond (method 3 of the RFC),
    so that jobs submitted within one millisecond still sort.
    """
    millis, nanos = divmod(time_ns(), 1_000_000)
    fraction = nanos * 4096 // 1_000_000
    random = int.from_bytes(random_bytes(8), "big") & 0x3FFF_FFFF_FFFF_FFFF
    number = (millis << 80) | _VERSION_7 | (fraction << 64) | _VARIANT | random
    return uuid_from_bytes(number.to_bytes(16, "big"))


def uuid_text(number: UUID) -> str:
    """Spell it as `str` does, in C (0.16 instead of 0.54 µs)."""
    text: str = msgspec.to_builtins(number)
    return text


def uuid_from_bytes(raw: bytes) -> UUID:
    """Read 16 bytes; msgspec does so in C (0.25 µs), `UUID(bytes=…)` in Python (1.0 µs)."""
    return msgspec.convert(raw, UUID)
