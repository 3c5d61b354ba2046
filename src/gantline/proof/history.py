"""The recorder: a store whose every call and answer is written down, in memory or in a file.

A call that has no end was under way when its process died: its effect is unknown, as is that of
one which raised an error.
"""

import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from gantline.contract.query import Cursor, JobFilter, LaneRequest, Page, Pruned, PruneRule
from gantline.contract.records import RecordWrite
from gantline.contract.results import (
    Applied,
    ApplyResult,
    Conflict,
    DeleteResult,
    InsertResult,
    Leadership,
    ProgressResult,
    Renewal,
)
from gantline.contract.snapshot import JobSnapshot, LogEntry, LoggedEvent, Progress, Run, RunRef
from gantline.contract.store import JobStore, StoreTransaction
from gantline.contract.stored import Stored, StoredJob
from gantline.contract.submission import DedupeKey, NewJob
from gantline.contract.transition import StateGuard, Transition
from gantline.manager.sessions import new_session_id
from gantline.proof.call import (
    ROLLED_BACK,
    Answer,
    Answered,
    Asked,
    Call,
    Change,
    Claim,
    End,
    Key,
    Named,
    NamedJob,
    NamedRun,
    NamedToken,
    PageAfter,
    Process,
    Prune,
    SeenJob,
    SeenRow,
    StartedRun,
    Submitted,
)
from gantline.runtime import monotonic, now

_log = logging.getLogger("gantline.proof")

SUFFIX: Final = ".history"
PLAIN: Final = frozenset(
    {
        "ping",
        "request_keys",
        "ahead",
        "groups",
        "waiting",
        "gates",
        "counts",
        "dead_counts",
        "read_records",
        "dump",
        "open",
        "close",
    }
)
"""Verbs of which only the time is recorded: nothing of theirs is judged."""
_OPTIONAL: Final = ("advice", "software")
R = TypeVar("R")


class Sink(Protocol):
    """Where calls go. Both are called from any thread."""

    def begun(self, call: Call) -> None:
        """Keep a call that is about to be made."""
        ...

    def ended(self, call: Call) -> None:
        """Keep its end too."""
        ...


class MemoryHistory:
    """The calls of all processes that are simulated in this one, in the order of their begin."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._positions = count()

    def begun(self, call: Call) -> None:
        call.first = next(self._positions)
        self.calls.append(call)

    def ended(self, call: Call) -> None:
        if call.is_certain or not call.may_have_effect:
            call.last = next(self._positions)


class HistoryFile:
    """One process's calls, a line for each beginning and each end; made with the first of them.

    What was written is safe from the death of the process, not from that of the machine. Where it
    cannot be written the history ends, and the calls go on.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self._folder = folder
        self._process = process
        self._encode = msgspec.json.Encoder().encode
        self._lock = Lock()
        self._file: int | None = None
        self._has_failed = False

    def begun(self, call: Call) -> None:
        # The name of the process is in the first line.
        self._write(msgspec.structs.replace(call, process=""))

    def ended(self, call: Call) -> None:
        ended = call.ended or call.began
        self._write(End(number=call.number, ended=ended, answers=call.answers, error=call.error))

    def _write(self, item: Call | End) -> None:
        line = self._encode(item) + b"\n"
        with self._lock:
            if self._has_failed:
                return
            try:
                if self._file is None:
                    self._file, first = self._open(), self._encode(self._header()) + b"\n"
                    line = first + line
                if os.write(self._file, line) != len(line):
                    raise OSError("the file system is full")
            except OSError as error:
                self._has_failed = True
                _log.warning("the history of %s ends here: %s", self._process, error)

    def _open(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = self._folder / (self._process + SUFFIX)
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _header(self) -> Process:
        host = socket.gethostname()
        return Process(process=self._process, host=host, monotonic=monotonic(), now=now())


def recorded_in(folder: Path, store: JobStore) -> JobStore:
    """Record the calls of this process in a file of its own; for GANTLINE_HISTORY."""
    process = new_session_id()
    return recorded(store, HistoryFile(folder, process), process=process)


def recorded(store: JobStore, sink: Sink, *, process: str) -> JobStore:
    """Wrap a store so that every call and its answer go to the sink, under this name."""
    return cast("JobStore", _Recorded(store, sink, process))


# -- reading ------------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(Process | Call | End).decode


def read_history(file: Path) -> tuple[Process | None, list[Call]]:
    """Read the calls of one process, up to a line that was not written to its end."""
    process: Process | None = None
    calls: dict[int, Call] = {}
    with file.open("rb") as lines:
        for line in lines:
            try:
                item = _decode(line)
            except msgspec.DecodeError:
                break
            match item:
                case Process():
                    process = item
                case Call():
                    item.process = process.process if process else ""
                    calls[item.number] = item
                case End():
                    call = calls[item.number]
                    call.ended, call.answers, call.error = item.ended, item.answers, item.error
    return process, list(calls.values())


def read_histories(folder: Path, *, skew_seconds: float = 1.0) -> list[Call]:
    """Read and merge the files of all processes in a folder.

    Clocks of different hosts are compared by what the wall said, give or take `skew_seconds`.
    """
    host = ""
    calls: list[Call] = []
    offset = 0.0
    for file in sorted(folder.glob("*" + SUFFIX)):
        process, own = read_history(file)
        if process is None:
            continue
        shift = process.now.timestamp() - process.monotonic
        if not host:
            host, offset = process.host, shift
        elif process.host != host:
            for call in own:
                call.began += shift - offset - skew_seconds
                if call.ended is not None:
                    call.ended += shift - offset + skew_seconds
        calls += own
    return merged(calls)


def merged(calls: Iterable[Call]) -> list[Call]:
    """Order calls by their beginning; what began when another ended counts as at once."""
    ordered = sorted(calls, key=lambda call: (call.began, call.process, call.number))
    marks: list[tuple[float, int, int]] = []
    for index, call in enumerate(ordered):
        marks.append((call.began, 0, index))
        if call.ended is not None and (call.is_certain or not call.may_have_effect):
            marks.append((call.ended, 1, index))
    marks.sort()
    for position, (_, is_end, index) in enumerate(marks):
        if is_end:
            ordered[index].last = position
        else:
            ordered[index].first = position
    return ordered


# -- recording ----------------------------------------------------------------------------------


class _Recorded:
    """Stands for a store. What is no verb of the protocol is the store's own."""

    def __init__(self, store: JobStore, sink: Sink, process: str) -> None:
        self._store = store
        self._sink = sink
        self._process = process
        self._numbers = count(1)
        for name in _OPTIONAL:  # set, since a protocol that is checked at run time asks for that
            if found := getattr(store, name, None):
                setattr(self, name, found)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in PLAIN:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._answer(self.begin(name), found(*args, **kwargs), _nothing)

        return call

    def begin(
        self,
        verb: str,
        asked: Iterable[Asked] = (),
        *,
        session: str = "",
        lease: timedelta | None = None,
    ) -> Call:
        call = Call(
            number=next(self._numbers),
            verb=verb,
            began=monotonic(),
            asked=tuple(asked),
            session=session,
            lease_seconds=lease.total_seconds() if lease else 0.0,
            process=self._process,
        )
        self._sink.begun(call)
        return call

    def end(self, call: Call, answers: Iterable[Answered] = (), *, error: str = "") -> None:
        call.answers = tuple(answers)
        call.error = error
        call.ended = monotonic()
        self._sink.ended(call)

    async def _answer(
        self, call: Call, made: Awaitable[R], reduce: Callable[[R], Iterable[Answered]]
    ) -> R:
        try:
            answer = await made
        except BaseException as error:
            self.end(call, error=type(error).__name__)
            raise
        self.end(call, reduce(answer))
        return answer

    # -- what changes jobs ------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        call = self.begin("insert", map(Submitted.of, jobs))
        return await self._answer(call, self._store.insert(jobs), _results)

    async def insert_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[InsertResult]:
        call = self.begin("insert_in", map(Submitted.of, jobs))
        return await self._answer(call, self._store.insert_in(connection, jobs), _results)

    async def claim(
        self, session: str, claim_id: UUID, requests: Sequence[LaneRequest], *, lease: timedelta
    ) -> list[Run]:
        claim = Claim(claim_id, tuple(requests))
        call = self.begin("claim", [claim], session=session, lease=lease)
        made = self._store.claim(session, claim_id, requests, lease=lease)
        return await self._answer(call, made, _runs)

    async def renew(self, session: str, runs: Sequence[RunRef], *, lease: timedelta) -> Renewal:
        named = [NamedRun(run.job_id, run.token) for run in runs]
        call = self.begin("renew", named, session=session, lease=lease)
        return await self._answer(call, self._store.renew(session, runs, lease=lease), _renewal)

    async def progress(self, updates: Sequence[Progress]) -> list[ProgressResult]:
        named = [NamedRun(one.run.job_id, one.run.token, one.logged) for one in updates]
        call = self.begin("progress", named)
        return await self._answer(call, self._store.progress(updates), _results)

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        call = self.begin("apply", map(Change.of, transitions))
        return await self._answer(call, self._store.apply(transitions), _results)

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        return self._transaction(self._store.transaction())

    @asynccontextmanager
    async def _transaction(
        self, begun: AbstractAsyncContextManager[StoreTransaction]
    ) -> AsyncIterator[StoreTransaction]:
        """Each change ends when its transaction does: only then it is known what became of it."""
        written: list[tuple[Call, ApplyResult]] = []
        is_committing = False
        try:
            async with begun as inner:
                yield _RecordedTransaction(self, inner, written)
                is_committing = True
        except BaseException as error:
            for call, _ in written:
                self.end(call, error=type(error).__name__ if is_committing else ROLLED_BACK)
            raise
        for call, result in written:
            self.end(call, [Answer.of(result)])

    async def expired(self, *, limit: int, after: UUID | None = None) -> list[Run]:
        call = self.begin("expired")
        return await self._answer(call, self._store.expired(limit=limit, after=after), _runs)

    async def past_expiry(self, *, limit: int) -> list[UUID]:
        call = self.begin("past_expiry")
        return await self._answer(call, self._store.past_expiry(limit=limit), _nothing)

    async def expire_session(self, session: str) -> int:
        call = self.begin("expire_session", session=session)
        return await self._answer(call, self._store.expire_session(session), _number)

    async def delete(self, jobs: Sequence[tuple[UUID, StateGuard]]) -> list[DeleteResult]:
        named = [
            NamedJob(job_id, guard.tenant_id, guard.status, guard.version) for job_id, guard in jobs
        ]
        return await self._answer(self.begin("delete", named), self._store.delete(jobs), _results)

    async def prune(
        self, rules: Sequence[PruneRule], *, limit: int, keep_events_after: int | None = None
    ) -> Pruned:
        call = self.begin("prune", [Prune(tuple(rules), limit, keep_events_after)])
        made = self._store.prune(rules, limit=limit, keep_events_after=keep_events_after)
        return await self._answer(call, made, lambda pruned: [pruned.jobs])

    async def load(self, items: Sequence[Stored]) -> None:
        jobs = [NamedJob(one.job.job_id) for one in items if isinstance(one, StoredJob)]
        return await self._answer(self.begin("load", jobs), self._store.load(items), _nothing)

    async def clear(self) -> None:
        return await self._answer(self.begin("clear"), self._store.clear(), _nothing)

    # -- what reads -------------------------------------------------------------------------------

    async def get(
        self, job_ids: Sequence[UUID], *, tenant_id: str | None
    ) -> list[JobSnapshot | None]:
        call = self.begin("get", [NamedJob(job_id, tenant_id) for job_id in job_ids])
        made = self._store.get(job_ids, tenant_id=tenant_id)
        return await self._answer(
            call, made, lambda jobs: [None if job is None else SeenJob.of(job) for job in jobs]
        )

    async def find(self, job_filter: JobFilter, *, limit: int, after: Cursor | None = None) -> Page:
        call = self.begin("find")
        made = self._store.find(job_filter, limit=limit, after=after)
        return await self._answer(call, made, lambda page: map(SeenJob.of, page.items))

    async def history(self, job_id: UUID, *, tenant_id: str | None) -> list[LogEntry]:
        call = self.begin("history", [NamedJob(job_id, tenant_id)])
        made = self._store.history(job_id, tenant_id=tenant_id)
        return await self._answer(call, made, lambda rows: map(SeenRow.of, rows))

    async def events(self, *, after: int, limit: int) -> list[LoggedEvent]:
        call = self.begin("events", [PageAfter(after, limit)])
        return await self._answer(call, self._store.events(after=after, limit=limit), _rows)

    async def last_event(self) -> int:
        return await self._answer(self.begin("last_event"), self._store.last_event(), _number)

    async def sequence(self, *, limit: int) -> int:
        return await self._answer(
            self.begin("sequence"), self._store.sequence(limit=limit), _number
        )

    async def held(self, keys: Sequence[DedupeKey]) -> list[UUID | None]:
        call = self.begin("held", [Named(Key.of(key).digest) for key in keys])
        return await self._answer(call, self._store.held(keys), _nothing)

    # -- beside the jobs --------------------------------------------------------------------------

    async def lead(self, role: str, owner: str, *, lease: timedelta) -> Leadership | None:
        call = self.begin("lead", [Named(role)], session=owner, lease=lease)
        return await self._answer(
            call,
            self._store.lead(role, owner, lease=lease),
            lambda held: [None if held is None else held.term],
        )

    async def resign(self, role: str, owner: str, term: int) -> None:
        call = self.begin("resign", [Named(role)], session=owner)
        return await self._answer(call, self._store.resign(role, owner, term), _nothing)

    async def write_records(self, writes: Sequence[RecordWrite]) -> list[Applied | Conflict]:
        call = self.begin("write_records", [Named(write.namespace) for write in writes])
        return await self._answer(call, self._store.write_records(writes), _results)


class _RecordedTransaction:
    """A handler's transaction; what it writes besides a change is its own."""

    def __init__(
        self,
        recorder: _Recorded,
        inner: StoreTransaction,
        written: list[tuple[Call, ApplyResult]],
    ) -> None:
        self._recorder = recorder
        self._inner = inner
        self._written = written

    @property
    def connection(self) -> Any:
        return self._inner.connection

    async def apply(self, transition: Transition) -> ApplyResult:
        call = self._recorder.begin("apply", [Change.of(transition)])
        try:
            result = await self._inner.apply(transition)
        except BaseException as error:
            self._recorder.end(call, error=type(error).__name__)
            raise
        self._written.append((call, result))
        return result


def _results(results: Iterable[object]) -> Iterable[Answer]:
    return map(Answer.of, results)


def _runs(runs: Iterable[Run]) -> Iterable[StartedRun]:
    return map(StartedRun.of, runs)


def _rows(events: Iterable[LoggedEvent]) -> Iterable[SeenRow]:
    return [SeenRow.of(event.entry, event.sequence) for event in events]


def _renewal(renewal: Renewal) -> Iterable[NamedToken]:
    lost = [NamedToken(token, True) for token in renewal.lost]
    return [*lost, *(NamedToken(token, False) for token in renewal.cancel_requested)]


def _number(number: int) -> Iterable[int]:
    return (number,)


def _nothing(answer: object) -> Iterable[Answered]:
    return ()
