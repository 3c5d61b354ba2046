"""Verification: reads a chain from its end to its beginning and names what does not fit."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from gantline.audit.chain import (
    DECODE_ERRORS,
    FIRST_PREVIOUS,
    JOB,
    AuditEvent,
    FaultyEntry,
    Instant,
    SealedEvent,
    find_fault,
)
from gantline.contract.errors import InvalidInput

PRUNED: Final = "pruneAudit"
"""The type of the events that stand for what retention has removed."""
SHORTEST_AGE: Final = timedelta(hours=1)
"""What is younger is not removed: a writer may be about to append after it."""
LONGEST_LINE: Final = 1 << 20
"""The limit for a line of an exported file; an event stays far below."""
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
"""By how much the store's clock may be ahead of that of the verifier."""


class FindingKind(StrEnum):
    """How a chain was tampered with."""

    EDITED = "edited"
    INSERTED = "inserted"
    REORDERED = "reordered"
    MISSING = "missing"
    TAIL_CUT = "tail-cut"


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that is wrong with a chain, and where."""

    tenant_id: str
    version: int | None
    """The first version that it is about; None where that is not known."""
    last_version: int | None = None
    """The last one, where it is about several."""
    aggregate: str = ""
    what: FindingKind
    detail: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long a chain was. Kept outside of the store, it shows what was cut off its end.

    An exported event is one too.
    """

    tenant_id: str
    version: int
    hash: str
    time: Instant


class Removed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What retention has removed: all events up to the last one, which proves how old they were.

    Its hash is in the event after it, and covers its time; and times only grow along a chain.
    """

    last: SealedEvent
    count: int
    before: Instant
    actor: str = ""
    """Who removed it: the actor of the event that says so."""

    @property
    def through(self) -> int:
        return self.last.version


class ChainReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was verified of one chain, and what is wrong with it."""

    tenant_id: str
    events: int
    first_version: int | None
    last_version: int | None
    findings: list[Finding]
    removed: Removed | None = None
    """What retention has removed and so is not verified, as the chain says."""


class Verifier:
    """Takes the events of one chain, newest first, and finds what is wrong with them.

    An event fits the next newer one by its version and its hash. One that does not fit is checked
    together with the next older one: where the chain is unbroken without it, it was inserted; else
    something is missing.
    """

    def __init__(
        self, tenant_id: str, checkpoint: Checkpoint | None = None, *, now: datetime
    ) -> None:
        self._tenant_id = tenant_id
        self._checkpoint = checkpoint
        self._now = now
        self._waiting: AuditEvent | None = None
        self._newer: AuditEvent | None = None
        self._trusts_newer = True
        self._gaps: list[tuple[int, int]] = []
        self._strays: list[AuditEvent] = []
        self._removed: dict[int, Removed] = {}
        self._findings: list[Finding] = []
        self._events = 0
        self._first: int | None = None
        self._last: int | None = None

    def add(self, event: AuditEvent | FaultyEntry) -> None:
        if isinstance(event, FaultyEntry):
            self._find(FindingKind.EDITED, None, f"{event.where} {event.problem}")
            if event.is_lost:
                self._check_waiting(None)
                self._trusts_newer = False
            return
        self._events += 1
        self._check_waiting(event)
        self._waiting = event

    def finish(self) -> ChainReport:
        self._check_waiting(None)
        self._check_beginning()
        self._report_gaps_and_strays()
        self._check_checkpoint()
        findings = sorted(self._findings, key=lambda one: (one.version or 0, one.what))
        return ChainReport(
            tenant_id=self._tenant_id,
            events=self._events,
            first_version=self._first,
            last_version=self._last,
            findings=findings,
            removed=self._furthest,
        )

    @property
    def _furthest(self) -> Removed | None:
        return self._removed[max(self._removed)] if self._removed else None

    # -- event by event ---------------------------------------------------------------------------

    def _check_waiting(self, older: AuditEvent | None) -> None:
        event, self._waiting = self._waiting, None
        if event is None:
            return
        problem, newer = self._problem_of(event), self._newer
        if newer is None:
            self._begin_with(event, problem, older)
        elif _fits(event, newer, by_hash=self._trusts_newer):
            self._accept(event, problem)
        elif older is not None and self._trusts_newer and _fits(older, newer, by_hash=True):
            self._strays.append(event)  # the chain is unbroken without it
        elif problem:
            # It cannot be trusted, but it is where the next older event should be.
            self._accept(msgspec.structs.replace(event, version=newer.version - 1), problem)
        elif event.version == newer.version - 1:
            detail = f"version {newer.version} was written after another one than this"
            self._find(FindingKind.EDITED, event, detail)
            self._accept(event)
        elif event.version < newer.version and (older is None or older.version < event.version):
            self._gaps.append((event.version + 1, newer.version - 1))
            self._accept(event)
        else:
            self._strays.append(event)

    def _begin_with(self, event: AuditEvent, problem: str | None, older: AuditEvent | None) -> None:
        if not problem and older is not None and older.version > event.version:
            self._strays.append(event)  # it cannot be the newest
        else:
            self._accept(event, problem)

    def _problem_of(self, event: AuditEvent) -> str | None:
        if event.tenant_id != self._tenant_id:
            return f"it is of the tenant {event.tenant_id!r}"
        return None if event.is_sound else "its hash does not match what it says"

    def _accept(self, event: AuditEvent, problem: str | None = None) -> None:
        """Let the next older event fit this one; by its version alone, if this one was changed."""
        newer = self._newer if self._trusts_newer and not problem else None
        if newer and newer.time < event.time:
            self._find(FindingKind.EDITED, newer, "its time is before that of an older event")
        self._newer, self._trusts_newer = event, problem is None
        self._last = event.version if self._last is None else self._last
        self._first = event.version
        if problem:
            self._find(FindingKind.EDITED, event, problem)
            return
        if (gone := self._removed.get(event.version)) and gone.last != event.sealed:
            self._find(FindingKind.EDITED, event, "it is another one than is said to be removed")
        is_of_job = event.actor.startswith(JOB)  # whose entries may be of any type
        if event.type == PRUNED and not is_of_job and (removed := _read_removed(event)):
            if lie := self._find_lie(event, removed):
                self._find(FindingKind.EDITED, event, lie)
            self._removed.setdefault(removed.through, removed)
        known = self._checkpoint
        if known and event.version == known.version and event.hash != known.hash:
            self._find(FindingKind.EDITED, event, "it is another one than in the checkpoint")

    def _find_lie(self, event: AuditEvent, removed: Removed) -> str | None:
        """Whether an event that says what was removed cannot have been written by retention."""
        known = self._removed.get(removed.through, removed)
        if event.time - self._now > _CLOCKS_DIFFER:
            return "it says that it was written at a time that is still to come"
        if event.time - removed.before < SHORTEST_AGE:
            return "it removed what was not an hour old"
        if removed.last.time >= removed.before:
            return "it removed what was younger than it says"
        if removed.through >= event.version or removed.last != known.last:
            return "it removed what was not there to be removed"
        return None

    # -- at the end -------------------------------------------------------------------------------

    def _check_beginning(self) -> None:
        oldest = self._newer
        if oldest is None:
            return
        removed_through = self._furthest.through if self._furthest else 0
        if removed_through < oldest.version - 1:
            self._gaps.append((removed_through + 1, oldest.version - 1))
            return
        gone = self._removed.get(oldest.version - 1)
        before = gone.last.hash if gone else FIRST_PREVIOUS if oldest.version == 1 else None
        if self._trusts_newer and before is not None and before != oldest.previous_hash:
            detail = "it was written after another one than the chain says"
            self._find(FindingKind.EDITED, oldest, detail)

    def _report_gaps_and_strays(self) -> None:
        elsewhere = {event.version for event in self._strays}
        for first, last in self._gaps:
            for start, end in _split_range(first, last, elsewhere):
                self._find_range(FindingKind.MISSING, start, end, "not in the chain any more")
        for event in self._strays:
            is_missed = any(first <= event.version <= last for first, last in self._gaps)
            if is_missed or event.version > (self._last or 0):
                self._find(FindingKind.REORDERED, event, "it is out of order")
            else:
                self._find(FindingKind.INSERTED, event, "the chain goes on without it")

    def _check_checkpoint(self) -> None:
        checkpoint = self._checkpoint
        if checkpoint is None:
            return
        last = self._last or 0
        when = f"{checkpoint.time:%Y-%m-%d %H:%M:%S}"
        if checkpoint.version > last:
            detail = f"the checkpoint of {when} knows of them"
            self._find_range(FindingKind.TAIL_CUT, last + 1, checkpoint.version, detail)
        removed = self._furthest
        is_gone = self._first is None or checkpoint.version < self._first
        if removed and is_gone and checkpoint.time >= removed.before:
            detail = f"it was younger ({when}) than what is said to have been removed"
            self._find_range(FindingKind.MISSING, checkpoint.version, checkpoint.version, detail)

    # -- findings ---------------------------------------------------------------------------------

    def _find(self, what: FindingKind, event: AuditEvent | None, detail: str) -> None:
        self._findings.append(
            Finding(
                tenant_id=self._tenant_id,
                version=event.version if event else None,
                aggregate=event.aggregate if event else "",
                what=what,
                detail=detail,
            )
        )

    def _find_range(self, what: FindingKind, first: int, last: int, detail: str) -> None:
        self._findings.append(
            Finding(
                tenant_id=self._tenant_id,
                version=first,
                last_version=last if last > first else None,
                what=what,
                detail=detail,
            )
        )


async def verify_chain(
    tenant_id: str,
    events: AsyncIterator[AuditEvent | FaultyEntry],
    *,
    now: datetime,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[int], Any] = lambda count: None,
) -> ChainReport:
    """Verify a chain whose events come newest first; `progress` is called after each."""
    verifier = Verifier(tenant_id, checkpoint, now=now)
    count = 0
    async for event in events:
        verifier.add(event)
        count += 1
        progress(count)
    return verifier.finish()


def _fits(event: AuditEvent, newer: AuditEvent, *, by_hash: bool) -> bool:
    """Whether `newer` was written directly after this one."""
    if event.version != newer.version - 1:
        return False
    return not by_hash or event.hash == newer.previous_hash


def _read_removed(event: AuditEvent) -> Removed | None:
    try:
        removed = msgspec.convert(event.payload.get("details"), Removed)
        return msgspec.structs.replace(removed, actor=event.actor)
    except msgspec.ValidationError:
        return None


def _split_range(first: int, last: int, others: set[int]) -> list[tuple[int, int]]:
    """Return a range without the others, as ranges: a forged version can make it very long."""
    inside = sorted(version for version in others if first <= version <= last)
    starts = [first, *(version + 1 for version in inside)]
    ends = [*(version - 1 for version in inside), last]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start <= end]


_event_decoder: Final = msgspec.json.Decoder(AuditEvent)
_checkpoint_decoder: Final = msgspec.json.Decoder(Checkpoint)


def encode_line(thing: AuditEvent | Checkpoint) -> bytes:
    return msgspec.json.encode(thing) + b"\n"


def read_events(lines: Iterable[bytes]) -> Iterator[AuditEvent | FaultyEntry]:
    """Read the events of an export, in its order."""
    for number, line in enumerate(lines, start=1):
        try:
            event = _event_decoder.decode(line)
        except DECODE_ERRORS:
            yield FaultyEntry(f"line {number}")
            continue
        yield event
        if fault := find_fault(f"line {number}", line.strip(), [event]):
            yield fault


def read_checkpoints(lines: Iterable[bytes]) -> dict[str, Checkpoint]:
    """Read the latest checkpoint of each tenant; raise InvalidInput for a line that is none."""
    found: dict[str, Checkpoint] = {}
    for number, line in enumerate(lines, start=1):
        try:
            one = _checkpoint_decoder.decode(line)
        except DECODE_ERRORS:
            raise InvalidInput(
                f"Line {number} of the checkpoint file is no checkpoint.",
                next_step="Make one with `gantline audit checkpoint`.",
            ) from None
        if one.tenant_id not in found or one.version > found[one.tenant_id].version:
            found[one.tenant_id] = one
    return found
