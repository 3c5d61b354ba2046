"""Rules for workers: what each did with the runs that it was given, as its calls show."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, cast
from uuid import UUID

from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES
from gantline.proof.call import Answer, Call, Change, Claim, NamedRun, NamedToken, StartedRun
from gantline.testing.simulation.application import QUEUES
from gantline.testing.simulation.outside import Life, Outside
from gantline.testing.simulation.script import Script, Switch

_HELD_PER_SLOT: Final = 6
"""Ends that may wait to be written, as many as a worker allows; what runs; what is claimed."""
_RENEWED_WITHIN: Final = 0.75
"""Of a lease: four tries are within one, and each may take as long as there is to the next."""
RENEWED_FOR_SECONDS: Final = 60.0
"""No handler may take longer, so no run need be renewed longer."""
_CLAIMED_WITHIN_SECONDS: Final = 1.5
_SLOW_SECONDS: Final = 0.5
_LOOKS_WITHIN_SECONDS: Final = 20.0
"""An idle worker looks for work every two seconds. A handler that does not stop at once may keep a
slot for fifteen."""
_REOPENED_WITHIN_SECONDS: Final = 10.0
"""So late a worker may notice that the store is open again."""


class Given:
    """A run that a worker was given, and what it did with it."""

    __slots__ = ("claim", "ended", "lost", "renewed", "run")

    def __init__(self, run: StartedRun, claim: Call) -> None:
        self.run = run
        self.claim = claim
        self.renewed: list[float] = []
        """When renewals were sent that named it."""
        self.ended: float | None = None
        """When the worker knew what had become of its end."""
        self.lost: float | None = None
        """When it learned that the run is lost."""

    def __str__(self) -> str:
        return f"run {self.run.fence} of job {self.run.job_id} ({self.claim})"

    @property
    def at(self) -> float:
        return cast("float", self.claim.ended)

    @property
    def over(self) -> float:
        """When it was no longer this worker's."""
        known = [at for at in (self.ended, self.lost) if at is not None]
        return min(known, default=float("inf"))


class _Window(NamedTuple):
    first: float
    last: float


def given_runs(calls: Sequence[Call]) -> dict[UUID, Given]:
    """All runs that workers were given for certain, by their tokens."""
    given: dict[UUID, Given] = {}
    for call in calls:
        if call.verb == "claim" and call.is_certain:
            for run in cast("tuple[StartedRun, ...]", call.answers):
                given.setdefault(run.token, Given(run, call))
    for call in calls:
        if call.verb == "apply":
            _note_ends(given, call)
        elif call.verb == "renew":
            _note_renewal(given, call)
    return given


def _note_ends(given: dict[UUID, Given], call: Call) -> None:
    if not call.is_certain:
        return
    answers = cast("tuple[Answer, ...]", call.answers)
    for change, answer in zip(cast("tuple[Change, ...]", call.asked), answers, strict=True):
        one = given.get(change.change_id)
        # One that is refused since a cancel was requested is to be decided again.
        is_an_end = change.by_run and not change.only_expired and answer.name != "CancelPending"
        if one is not None and is_an_end and one.claim.process == call.process:
            ended = cast("float", call.ended)
            one.ended = ended if one.ended is None else min(one.ended, ended)


def _note_renewal(given: dict[UUID, Given], call: Call) -> None:
    for run in cast("tuple[NamedRun, ...]", call.asked):
        if one := given.get(run.token):
            one.renewed.append(call.began)
    if call.is_certain:
        for answer in cast("tuple[NamedToken, ...]", call.answers):
            if answer.lost and (one := given.get(answer.token)) and one.lost is None:
                one.lost = call.ended


def check_workers(
    script: Script, outside: Outside, calls: Sequence[Call], given: dict[UUID, Given]
) -> Iterator[str]:
    """Judge what all workers did."""
    for one in given.values():
        life = outside.lives[one.claim.process]
        yield from _left_behind(script, life, one)
        yield from _not_renewed(script, outside, life, one)
    by_process: dict[str, list[Given]] = defaultdict(list)
    for one in given.values():
        by_process[one.claim.process].append(one)
    by_caller: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_caller[call.process].append(call)
    has_switches = any(isinstance(step, Switch) for step in script.steps)
    for process, some in by_process.items():
        yield from _too_many_held(script, outside.lives[process], process, some)
        yield from _no_claims(outside, process, by_caller[process], some)
        if not has_switches:
            yield from _slow_claims(outside, process, by_caller[process], some)


def _left_behind(script: Script, life: Life, one: Given) -> Iterator[str]:
    """A worker that stops in order, and has the time, has ended all that it was given.

    Not what it had given up before: a run that cannot be renewed for longer than its handler may
    take is over for its worker without any call, and then it is renewed no more.
    """
    if not life.in_order or life.asked_to_stop is None or life.ended is None:
        return
    if max([one.at, *one.renewed]) < life.asked_to_stop - script.lease:
        return
    if life.ended - life.asked_to_stop < script.drain and one.over == float("inf"):
        yield f"{one} was never ended by its worker, which stopped in order"


def _not_renewed(script: Script, outside: Outside, life: Life, one: Given) -> Iterator[str]:
    """A run is renewed in time, until its end is written."""
    if life.asked_to_stop is not None and one.at >= life.asked_to_stop:
        return  # it is given back at once
    over = min(one.over, life.ended or float("inf"), one.at + RENEWED_FOR_SECONDS)
    first = one.at
    for at in [*one.renewed, over]:
        if min(at, over) - first > _RENEWED_WITHIN * script.lease and not outside.stood_still(
            one.claim.process, first, at
        ):
            yield f"{one} was not renewed from {first} to {min(at, over)}"
            return
        first = max(first, at)


def _too_many_held(
    script: Script, life: Life, process: str, some: Sequence[Given]
) -> Iterator[str]:
    """A worker for which the store does not write claims no more."""
    slots = script.slots_in_all or script.slots * (len(set(QUEUES.values())) + 1)
    marks = [(one.at, 1) for one in some] + [(one.over, -1) for one in some]
    held = 0
    for at, change in sorted(marks):
        held += change
        if held > _HELD_PER_SLOT * slots and at < (life.ended or float("inf")):
            yield f"{process} held {held} runs at {at}, and has {slots} slots"
            return


# -- how soon -----------------------------------------------------------------------------------


def _no_claims(
    outside: Outside, process: str, calls: Sequence[Call], given: Sequence[Given]
) -> Iterator[str]:
    """A worker that runs nothing looks for work, also after it has run a suspect alone."""
    claims = [call for call in calls if call.verb == "claim" and call.ended is not None]
    over = _over(outside.lives[process])
    for claim, following in zip(claims, [*(call.began for call in claims[1:]), over], strict=True):
        last, since = min(following, over), cast("float", claim.ended)
        if last - since <= _LOOKS_WITHIN_SECONDS:
            continue
        since = max([since, *(one.over for one in given if one.at < last)])
        disturbed = [(call.began, _ended(call)) for call in calls if _is_troubled(call)]
        for began, ended in [*disturbed, (last, last)]:
            if (
                min(began, last) - since > _LOOKS_WITHIN_SECONDS
                and not outside.stood_still(process, since, began)
                and not outside.was_closed(since - _REOPENED_WITHIN_SECONDS, began)
            ):
                yield f"{process} ran nothing and claimed nothing from {since} to {began}"
                return
            since = max(since, ended)


def _over(life: Life) -> float:
    return min(at for at in (life.asked_to_stop, life.ended, float("inf")) if at is not None)


def _slow_claims(
    outside: Outside, process: str, calls: Sequence[Call], given: Sequence[Given]
) -> Iterator[str]:
    """After a claim that brought all it asked for there may be more: so another one is made as
    soon as one of its own runs has ended. The slots of others may have been free before it."""
    claims = [call for call in calls if call.verb == "claim"]
    ends: dict[UUID, Call] = {}
    for call in calls:
        if call.verb == "apply":
            for change in cast("tuple[Change, ...]", call.asked):
                ends.setdefault(change.change_id, call)
    over = _over(outside.lives[process])
    for claim, following in pairwise(claims):
        if not _was_full(claim) or following.first < claim.last or following.began >= over:
            continue
        runs = cast("tuple[StartedRun, ...]", claim.answers)
        ended = [ends[run.token].began for run in runs if run.token in ends]
        window = _Window(min(ended, default=float("inf")), following.began)
        if window.last - window.first > _CLAIMED_WITHIN_SECONDS and _is_free(
            outside, process, calls, given, window
        ):
            yield f"{process} had a free slot at {window.first}, and claimed again at {window.last}"
            return


def _was_full(claim: Call) -> bool:
    if not claim.is_certain:
        return False
    (asked,) = cast("tuple[Claim]", claim.asked)
    return len(claim.answers) == sum(request.limit for request in asked.requests)


def _is_free(
    outside: Outside,
    process: str,
    calls: Sequence[Call],
    given: Sequence[Given],
    window: _Window,
) -> bool:
    """Whether nothing kept a worker from claiming in this time."""
    return _is_undisturbed(outside, process, calls, window) and not any(
        one.run.crashes >= SUSPECT_AFTER_CRASHES
        for one in given
        if one.at < window.last and window.first < one.over
    )


def _is_undisturbed(outside: Outside, process: str, calls: Sequence[Call], window: _Window) -> bool:
    """Whether it did not stand still in this time, and each of its calls was answered at once."""
    if outside.stood_still(process, window.first, window.last):
        return False
    return not any(
        call.began < window.last and window.first < _ended(call) and _is_troubled(call)
        for call in calls
    )


def _is_troubled(call: Call) -> bool:
    return bool(call.error) or _ended(call) - call.began > _SLOW_SECONDS


def _ended(call: Call) -> float:
    return float("inf") if call.ended is None else call.ended
