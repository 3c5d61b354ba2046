"""Histories made by hand, call by call: what was asked, and what is said to have been answered."""

from typing import Any
from uuid import UUID, uuid5

from gantline.contract.query import LaneRequest, PruneRule
from gantline.contract.status import STATUS_AFTER, Event, JobStatus, Reason
from gantline.contract.submission import KeyKind
from gantline.proof.call import (
    NEVER,
    Answer,
    Answered,
    Asked,
    Call,
    Change,
    Claim,
    Key,
    NamedJob,
    NamedRun,
    NamedToken,
    PageAfter,
    Prune,
    SeenJob,
    SeenRow,
    StartedRun,
    Submitted,
)
from gantline.testing.factories import CREATED_AT

_NAMES = UUID(int=7)
LANE = LaneRequest("default", ("test",), 10)


def named(*parts: object) -> UUID:
    """The same id for the same name."""
    return uuid5(_NAMES, "/".join(map(str, parts)))


def applied(version: int = 1) -> Answer:
    return Answer("Applied", version)


STALE = Answer("Stale")
NOT_FOUND = Answer("NotFound")


def key(name: str, fingerprint: str = "") -> Key:
    return Key(KeyKind.JOB, name, fingerprint)


class Story:
    """Calls one after the other; `lost` is one whose answer never came."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._position = 0

    def call(
        self, verb: str, asked: list[Any], answers: list[Any], *, lost: bool = False, **fields: Any
    ) -> Call:
        call = Call(
            number=len(self.calls) + 1,
            verb=verb,
            began=float(self._position),
            asked=tuple[Asked, ...](asked),
            process="p",
            first=self._position,
            **fields,
        )
        self._position += 2
        if lost:
            call.ended, call.error = call.began + 1, "StoreUnavailable"
        else:
            call.ended, call.answers = call.began + 1, tuple[Answered, ...](answers)
            call.last = call.first + 1
        self.calls.append(call)
        return call

    def beside(self, one: Call, other: Call) -> None:
        """Have one end only after the other, later one."""
        one.last = other.last + 1 if other.last != NEVER else self._position + 1
        self._position += 4

    def insert(
        self, job: object, answer: Answer | None = None, *, lost: bool = False, **fields: Any
    ) -> Call:
        return self.call("insert", [submitted(job, **fields)], [answer or applied()], lost=lost)

    def claim(
        self,
        *runs: StartedRun,
        claim: object = None,
        lost: bool = False,
        request: LaneRequest = LANE,
    ) -> Call:
        claim_id = named("claim", claim or len(self.calls))
        asked = [Claim(claim_id, (request,))]
        session = runs[0].session if runs else "w"
        return self.call("claim", asked, list(runs), lost=lost, session=session)

    def apply(self, change: Change, answer: Answer | None = None, *, lost: bool = False) -> Call:
        return self.call("apply", [change], [answer or applied(3)], lost=lost)

    def renew(self, job: object, fence: int, *, is_lost: bool = False, session: str = "w") -> Call:
        token = named(job, fence)
        answers = [NamedToken(token, True)] if is_lost else []
        return self.call("renew", [NamedRun(named(job), token)], answers, session=session)

    def delete(self, job: object, answer: Answer | None = None, *, lost: bool = False) -> Call:
        asked = [NamedJob(named(job), "default", JobStatus.COMPLETED)]
        return self.call("delete", asked, [answer or applied(3)], lost=lost)

    def prune(self, status: JobStatus, *, keep: int | None = None) -> Call:
        rule = PruneRule(status, CREATED_AT.replace(year=2030))
        return self.call("prune", [Prune((rule,), 100, keep)], [1])

    def get(self, job: object, version: int | None = None, fence: int = 0) -> Call:
        seen = version and SeenJob(
            job_id=named(job), status=JobStatus.QUEUED, version=version, fence=fence
        )
        return self.call("get", [NamedJob(named(job))], [seen or None])

    def events(self, after: int, *rows: SeenRow) -> Call:
        return self.call("events", [PageAfter(after, 100)], list(rows))


def submitted(job: object, **fields: Any) -> Submitted:
    plain: dict[str, Any] = {
        "job_id": named(job),
        "tenant_id": "default",
        "job_type": "test",
        "queue": "default",
        "priority": 2,
        "max_attempts": 3,
    }
    return Submitted(**plain | fields)


def run(job: object, fence: int = 1, **fields: Any) -> StartedRun:
    plain: dict[str, Any] = {
        "job_id": named(job),
        "tenant_id": "default",
        "job_type": "test",
        "queue": "default",
        "token": named(job, fence),
        "session": "w",
        "fence": fence,
        "version": 2 * fence,
        "attempt": fence,
        "max_attempts": 3,
        "crashes": 0,
        "snoozes": 0,
        "priority": 2,
    }
    return StartedRun(**plain | fields)


def ended(job: object, event: Event, fence: int = 1, **fields: Any) -> Change:
    """The end of a run, with the counters that `decide` gives it."""
    given_back = event in (Event.SNOOZED, Event.RELEASED, Event.CRASHED)
    plain: dict[str, Any] = {
        "job_id": named(job),
        "change_id": named(job, fence),
        "event": event,
        "to": STATUS_AFTER[event],
        "reason": Reason.SUCCEEDED,
        "attempt": fence - given_back,
        "crashes": int(event is Event.CRASHED),
        "snoozes": int(event is Event.SNOOZED),
        "priority": 2,
        "by_run": True,
    }
    return Change(**plain | fields)


def acted(job: object, event: Event, version: int | None = None, **fields: Any) -> Change:
    """What an operator did."""
    plain: dict[str, Any] = {
        "job_id": named(job),
        "change_id": named(job, event, version),
        "event": event,
        "to": STATUS_AFTER[event],
        "reason": Reason.REDRIVEN,
        "attempt": 0,
        "crashes": 0,
        "snoozes": 0,
        "priority": 2,
        "status": JobStatus.FAILED if event is Event.REDRIVEN else JobStatus.QUEUED,
        "tenant_id": "default",
        "version": version,
    }
    return Change(**plain | fields)


def row(job: object, sequence: int, version: int = 3, **fields: Any) -> SeenRow:
    plain: dict[str, Any] = {
        "job_id": named(job),
        "version": version,
        "event": Event.COMPLETED,
        "status": JobStatus.COMPLETED,
        "reason": Reason.SUCCEEDED,
        "attempt": 1,
        "fence": 1,
        "at": CREATED_AT,
        "sequence": sequence,
    }
    return SeenRow(**plain | fields)
