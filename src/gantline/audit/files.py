"""Chains and checkpoints as files: JSON lines, to be kept and verified away from the store."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gantline.audit.chain import Unreadable
from gantline.audit.event import AuditEvent
from gantline.audit.findings import Checkpoint
from gantline.contract.errors import InvalidInput

LONGEST_LINE: Final = 1 << 20
"""Of what is read at once; an event stays far below."""

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_events: Final = msgspec.json.Decoder(AuditEvent)
_checkpoints: Final = msgspec.json.Decoder(Checkpoint)


def line_of(thing: AuditEvent | Checkpoint) -> bytes:
    return msgspec.json.encode(thing) + b"\n"


def read_events(lines: Iterable[bytes]) -> Iterator[AuditEvent | Unreadable]:
    """The events of an export, in its order."""
    for number, line in enumerate(lines, start=1):
        try:
            yield _events.decode(line)
        except _UNREADABLE:
            yield Unreadable(f"line {number}")


def read_checkpoints(lines: Iterable[bytes]) -> dict[str, Checkpoint]:
    """The furthest checkpoint of each tenant; raise InvalidInput for what is none."""
    found: dict[str, Checkpoint] = {}
    for number, line in enumerate(lines, start=1):
        try:
            one = _checkpoints.decode(line)
        except _UNREADABLE:
            raise InvalidInput(
                f"Line {number} of the checkpoint file is no checkpoint.",
                next_step="Make one with `gantline audit checkpoint`.",
            ) from None
        if one.tenant_id not in found or one.version > found[one.tenant_id].version:
            found[one.tenant_id] = one
    return found
