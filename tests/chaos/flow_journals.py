"""What handlers noted of their runs, beside what the store says of them: were there ever too many?

Instants are those of the host's clock, which the stores of these proofs have too.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from gantline.contract.snapshot import JobSnapshot, LogEntry
from gantline.contract.status import Event
from gantline.contract.store import JobStore

RunId = tuple[UUID, int]
"""A job, and the fence of its run."""


class Noted(NamedTuple):
    """A run as its handler saw it; without an end where its process was killed.

    A worker may call the handler of a run again, while its lease lasts: then there are several.
    """

    run: RunId
    key: str
    began: float
    ended: float | None
    process: int = 0


class Span(NamedTuple):
    """From when to when something held a place of its key."""

    run: RunId
    key: str
    began: float
    ended: float


class Crowd(NamedTuple):
    """At this moment more spans of a key were there than may be."""

    key: str
    at: float
    spans: tuple[Span, ...]


def read_journals(folder: Path) -> list[Noted]:
    ended: list[Noted] = []
    for file in folder.glob("*.journal"):
        open_runs: dict[RunId, Noted] = {}
        # The last line of a process that was killed may be there in part.
        whole, _, _ = file.read_text().rpartition("\n")
        for line in whole.splitlines():
            what, job_id, fence, key, at, _ = line.split()
            run = UUID(job_id), int(fence)
            if what == "began":
                assert run not in open_runs, f"{run} was begun beside itself"
                open_runs[run] = Noted(run, key, float(at), None, int(file.stem))
            else:
                ended.append(open_runs.pop(run)._replace(ended=float(at)))
        ended += open_runs.values()
    return ended


async def read_runs(store: JobStore, jobs: Collection[JobSnapshot]) -> dict[RunId, LogEntry]:
    """How the store says that each run ended. Only jobs with several runs have their log read."""
    ends: dict[RunId, LogEntry] = {}
    for job in jobs:
        rows = [job.last] if job.last else []
        if job.fence > 1:
            rows = await store.history(job.job.job_id, tenant_id=None)
        for row in rows:
            if row.fence and row.started_at is not None and row.event is not Event.CANCEL_REQUESTED:
                ends[row.job_id, row.fence] = row
    return ends


def leased_spans(noted: Iterable[Noted], ends: Mapping[RunId, LogEntry]) -> list[Span]:
    """While its handler was at work and the run was current: it counts to its limit then.

    It begins after its claim, and the store's instant of an end lies before what others see of it;
    so two such spans overlap only where both had a place.
    """
    spans = []
    for one in noted:
        until = ends[one.run].at.timestamp()
        ended = until if one.ended is None else min(one.ended, until)
        if ended > one.began:
            spans.append(Span(one.run, one.key, one.began, ended))
    return spans


def handler_spans(noted: Iterable[Noted], ends: Mapping[RunId, LogEntry]) -> list[Span]:
    """While its handler was at work, whatever the store says."""
    return [
        Span(
            *(one.run, one.key, one.began),
            ends[one.run].at.timestamp() if one.ended is None else one.ended,
        )
        for one in noted
    ]


def crowds(spans: Iterable[Span], most: int) -> Iterator[Crowd]:
    """Each start that made more than so many of a key."""
    by_key: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_key[span.key].append(span)
    for key, of_key in by_key.items():
        there: list[Span] = []
        for span in sorted(of_key, key=lambda span: span.began):
            there = [other for other in there if other.ended > span.began]
            there.append(span)
            if len(there) > most:
                yield Crowd(key, span.began, tuple(there))


def zombies(noted: Iterable[Noted], ends: Mapping[RunId, LogEntry]) -> list[Noted]:
    """Those whose handler came to its end after others had taken the run over."""
    return [
        one
        for one in noted
        if one.ended is not None
        and ends[one.run].event is Event.CRASHED
        and one.ended > ends[one.run].at.timestamp()
    ]


def back_after(
    noted: Iterable[Noted], ends: Mapping[RunId, LogEntry], killed: Mapping[int, float]
) -> list[float]:
    """How many seconds after its process was killed each run gave its place back, in order."""
    return sorted(
        ends[one.run].at.timestamp() - killed[one.process]
        for one in noted
        if one.ended is None and one.process in killed
    )


def most_over(starts: Iterable[float], *, per_second: float, burst: int) -> float:
    """By how many starts the worst of all windows is over what a gate lets through; or under it.

    A window of w seconds may have per_second * w + burst of them.
    """
    worst, least = float("-inf"), float("inf")
    for number, at in enumerate(sorted(starts)):
        # What was started before, beside what the rate has allowed by then.
        least = min(least, number - per_second * at)
        worst = max(worst, number + 1 - per_second * at - least)
    return worst - burst
