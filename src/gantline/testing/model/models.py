"""The models: who meets whom over one job and one key."""

from typing import Final

from gantline.contract.job import Job
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.manager.manager import Ending
from gantline.manager.submitter import Submission
from gantline.runtime import new_uuid
from gantline.testing.factories import JOB_TYPE, make_job, number, register_sessions
from gantline.testing.model.actors import (
    ALL_FATES,
    LEASE,
    ORDINARY,
    OUTCOMES,
    operator,
    passing_time,
    reaper,
    submitter,
    worker,
)
from gantline.testing.model.world import Actor, Desk, Fate, Model, Program

_KEY_NAME: Final = "key"
FIRST: Final = number(1)
SECOND: Final = number(2)
KEY: Final = DedupeKey(KeyKind.JOB, "default", JOB_TYPE, _KEY_NAME)
_LOSSES: Final = frozenset({Fate.REPEATED, Fate.LOST})
_ALL_OUTCOMES: Final = tuple(OUTCOMES)


def the_job(payload: object = None) -> Job:
    return make_job(payload, job_id=FIRST, idempotency_key=_KEY_NAME, max_attempts=2)


def another_job(payload: object = None) -> Job:
    """Of the same key; the same job once more, if the payload is."""
    return make_job(payload, job_id=SECOND, idempotency_key=_KEY_NAME, max_attempts=2)


async def queued(desk: Desk) -> None:
    await desk.manager.submit([Submission(the_job())])


async def failed(desk: Desk) -> None:
    await queued(desk)
    await register_sessions(desk.store, "early")
    (run,) = await desk.manager.claim("early", new_uuid(), [ORDINARY], lease=LEASE)
    await desk.manager.settle([Ending(run, OUTCOMES["failure"])])


def _model(name: str, *actors: Actor, begin: Program = queued, faults: int = 0) -> Model:
    return Model(
        name=name,
        begin=begin,
        actors=actors,
        job_ids=(FIRST, SECOND),
        key=KEY,
        faults=faults,
    )


def small_models() -> list[Model]:
    """Each in seconds on a store in memory."""
    return [
        _model(
            "two workers, time and the reaper",
            worker("worker-1", *_ALL_OUTCOMES, renews=1),
            worker("worker-2", "success"),
            passing_time(),
            reaper(),
        ),
        _model(
            "a worker and an operator who cancels, redrives and deletes",
            worker("worker-1", *_ALL_OUTCOMES),
            operator("cancel", "redrive", job_id=FIRST),
            operator("delete", job_id=FIRST, name="remover"),
        ),
        _model(
            "a redrive, a delete and two submits of the key of a failed job",
            operator("redrive", job_id=FIRST),
            operator("delete", job_id=FIRST, name="remover"),
            submitter(another_job()),
            submitter(the_job(), name="client-2"),
            worker("worker-1", "success", "failure"),
            begin=failed,
        ),
        _model(
            "a submit with another payload beside the end of a job",
            worker("worker-1", *_ALL_OUTCOMES),
            submitter(another_job("other")),
            operator("cancel", job_id=FIRST),
        ),
        _model(
            "two runs of one worker, which was slow",
            worker("run-1", "success", session="worker", renews=1),
            worker("run-2", "success", "retry", session="worker"),
            passing_time(),
            reaper(),
        ),
        _model(
            "a worker loses an answer or dies",
            worker("worker-1", "success", "retry", renews=1, fates=ALL_FATES),
            worker("worker-2", "success"),
            passing_time(),
            reaper(),
            faults=1,
        ),
        _model(
            "an operator and a worker lose answers",
            worker("worker-1", "success", "retry", fates=_LOSSES),
            operator("cancel", "redrive", job_id=FIRST, fates=_LOSSES),
            submitter(another_job(), fates=_LOSSES),
            faults=1,
        ),
    ]


def wide_models() -> list[Model]:
    """Each in a minute or so on a store in memory."""
    return [
        _model(
            "worker, reaper and operator lose answers or die",
            worker("worker-1", "success", "retry", fates=ALL_FATES),
            passing_time(),
            reaper(fates=_LOSSES),
            operator("cancel", job_id=FIRST, fates=_LOSSES),
            faults=1,
        ),
        _model(
            "three workers, time and the reaper twice",
            worker("worker-1", "success", "retry", renews=1),
            worker("worker-2", "success", "snooze"),
            worker("worker-3", "success"),
            passing_time(LEASE, LEASE),
            reaper(sweeps=2),
        ),
        _model(
            "two faults among two workers and the reaper",
            worker("worker-1", "success", "retry", fates=ALL_FATES),
            worker("worker-2", "success", fates=_LOSSES),
            passing_time(),
            reaper(),
            faults=2,
        ),
        _model(
            "operators and clients on the key of a failed job",
            operator("redrive", "cancel", job_id=FIRST),
            operator("delete", job_id=FIRST, name="remover"),
            submitter(another_job(), fates=_LOSSES),
            submitter(another_job("other"), name="client-2"),
            worker("worker-1", "success", "failure"),
            begin=failed,
            faults=1,
        ),
    ]
