"""Redis answers: whatever the server says, a verb ends, by an error of ours or as it went."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final
from uuid import uuid4

import pytest
from hypothesis import given

from gantline.contract.errors import StoreError
from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.outcome import ErrorInfo, Failure
from gantline.contract.query import JobFilter, PruneRule
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict
from gantline.contract.snapshot import Progress, Run
from gantline.contract.status import JobStatus
from gantline.contract.stored import Part
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import StateGuard, Transition
from gantline.manager.manager import Ending, JobManager
from gantline.stores.redis import RedisStore, open_store
from gantline.testing.factories import lane_requests, make_new, register_sessions
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_bounds, in_time
from tests.fuzz.mutation import mutated_bytes, seeded
from tests.fuzz.tampering import BROKEN, OTHERS, PASSING, Proxy, Tamper, changed, encoded, proxy_to
from tests.servers.redis import RedisServer

LEASE: Final = timedelta(minutes=5)
DEADLINE: Final = "0.1"
SECONDS: Final = 5.0
FAILURE: Final = Failure(ErrorInfo("BROKEN", "It is broken."), retryable=False)
FLOW: Final = (
    TypeFlow(job_type="test", running=50, running_in_all=90, gate=Gate("mail", 1000.0, 100)),
)
KEY: Final = DedupeKey(KeyKind.REQUEST, "default", "user:alice", "k", b"f" * 32, LEASE)


class Tampered:
    """A store that is reached through the proxy, and one that is not."""

    def __init__(self, proxy: Proxy, store: RedisStore, sound: RedisStore) -> None:
        self.proxy = proxy
        self.store = store
        self.sound = sound
        self.job = make_new({"a": 1}, idempotency_key="kept", request_key=KEY, logged=True)
        self.runs: list[Run] = []

    async def fill(self) -> None:
        """One of everything that is read."""
        await self.sound.insert([self.job, *(make_new(n, subject_id="s") for n in range(8))])
        await self.sound.insert([make_new(n, group=f"group-{n % 2}") for n in range(6)])
        await register_sessions(self.sound, "session")
        claimed = await self.sound.claim("session", uuid4(), lane_requests(limit=5), lease=LEASE)
        self.runs, ending = claimed[:3], claimed[3:]
        await JobManager(self.sound).settle([Ending(run, FAILURE) for run in ending])
        await self.sound.write_records([RecordWrite("a", str(n), b"1") for n in range(3)])


def _claim(it: Tampered) -> Awaitable[Any]:
    return it.store.claim("session", uuid4(), lane_requests(limit=2), lease=LEASE)


def _claim_under_limits(it: Tampered) -> Awaitable[Any]:
    return it.store.claim("session", uuid4(), lane_requests(limit=2, flow=FLOW), lease=LEASE)


def _throttle(it: Tampered) -> Awaitable[Any]:
    throttled = (Transition.throttled(run, delay=LEASE, closes="other") for run in it.runs[1:2])
    return it.store.apply(list(throttled))


def _settle(it: Tampered) -> Awaitable[Any]:
    return JobManager(it.store).settle([Ending(run, FAILURE) for run in it.runs[:1]])


def _progress(it: Tampered) -> Awaitable[Any]:
    return it.store.progress([Progress(run.ref, 50.0, "half", logged=True) for run in it.runs])


def _delete(it: Tampered) -> Awaitable[Any]:
    guard = StateGuard(JobStatus.FAILED, tenant_id="default")
    return it.store.delete([(uuid4(), guard)])


def _prune(it: Tampered) -> Awaitable[Any]:
    return it.store.prune([PruneRule(JobStatus.FAILED, datetime(2000, 1, 1, tzinfo=UTC))], limit=3)


VERBS: Final[dict[str, Callable[[Tampered], Awaitable[Any]]]] = {
    "ping": lambda it: it.store.ping(),
    "insert": lambda it: it.store.insert([make_new(), make_new()]),
    "claim": _claim,
    "claim_under_limits": _claim_under_limits,
    "renew": lambda it: it.store.renew("session", [run.ref for run in it.runs], lease=LEASE),
    "expired": lambda it: it.store.expired(limit=5),
    "past_expiry": lambda it: it.store.past_expiry(limit=5),
    "expire_session": lambda it: it.store.expire_session("nobody"),
    "progress": _progress,
    "apply": _settle,
    "throttle": _throttle,
    "delete": _delete,
    "prune": _prune,
    "lead": lambda it: it.store.lead("role", "me", lease=LEASE),
    "resign": lambda it: it.store.resign("role", "nobody", 1),
    "write_records": lambda it: it.store.write_records([RecordWrite("b", "k", b"v")]),
    "read_records": lambda it: it.store.read_records("a"),
    "get": lambda it: it.store.get([it.job.job.job_id, uuid4()], tenant_id=None),
    "request_keys": lambda it: it.store.request_keys([it.job.job.job_id]),
    "find": lambda it: it.store.find(JobFilter(tenant_id=None), limit=5),
    "find_by_subject": lambda it: it.store.find(JobFilter(subject_id="s"), limit=5),
    "ahead": lambda it: it.store.ahead(
        it.job.job.job_id, [it.job.job.job_type], tenant_id=None, limit=5
    ),
    "counts": lambda it: it.store.counts(tenant_id="default"),
    "groups": lambda it: it.store.groups(
        it.job.job.queue, it.job.job.job_type, tenant_id=None, limit=3
    ),
    "waiting": lambda it: it.store.waiting(
        it.job.job.queue, it.job.job.job_type, tenant_id="default", group="", at_most=3
    ),
    "gates": lambda it: it.store.gates(["mail", "other"]),
    "dead_counts": lambda it: it.store.dead_counts(tenant_id=None),
    "history": lambda it: it.store.history(it.job.job.job_id, tenant_id=None),
    "events": lambda it: it.store.events(after=0, limit=5),
    "last_event": lambda it: it.store.last_event(),
    "held": lambda it: it.store.held([KEY]),
    "advice": lambda it: it.store.advice(),
    "dump_jobs": lambda it: it.store.dump(Part.JOBS, limit=3),
    "dump_keys": lambda it: it.store.dump(Part.KEYS, limit=3),
    "dump_records": lambda it: it.store.dump(Part.RECORDS, limit=3),
    "dump_terms": lambda it: it.store.dump(Part.TERMS, limit=3),
    "dump_marks": lambda it: it.store.dump(Part.MARKS, limit=3),
}


@pytest.fixture(scope="module")
def tampered(runner: asyncio.Runner, redis: RedisServer) -> Iterator[Tampered]:
    prefix = f"w{uuid4().hex}"
    context = proxy_to(redis)
    proxy = runner.run(context.__aenter__())
    store = open_store(proxy.url(prefix=prefix, deadline=DEADLINE))
    sound = open_store(redis.url(prefix=prefix))
    for one in (store, sound):
        runner.run(one.open())
    it = Tampered(proxy, store, sound)
    runner.run(it.fill())
    yield it
    for one in (store, sound):
        runner.run(one.close())
    runner.run(context.__aexit__(None, None, None))


async def outcome(it: Tampered, name: str) -> Any:
    """What a verb gives, or the error of ours that it raises; any other is a failure."""
    try:
        async with asyncio.timeout(SECONDS):
            return await VERBS[name](it)
    except TimeoutError:
        raise AssertionError(f"{name} does not end") from None
    except StoreError as error:
        return error


async def works_again(it: Tampered) -> None:
    """After whatever was said, the same store works.

    Not always at once: what was said too much may still come, and a deadline so short may pass.
    """
    it.proxy.stop_tampering()
    new, found = make_new(), None
    async with asyncio.timeout(SECONDS):
        while found is None:
            with suppress(StoreError):
                await it.store.insert([new])
                (found,) = await it.store.get([new.job.job_id], tenant_id=None)
    assert found.job == new.job


def tried(runner: asyncio.Runner, it: Tampered, name: str, tamper: Tamper, times: int = 1) -> Any:
    it.proxy.tamper(tamper, times=times)
    try:
        with in_time():
            found = runner.run(outcome(it, name))
    except BaseException as error:
        error.add_note(f"{name}: {error!r}")
        raise
    runner.run(works_again(it))
    return found


def always(said: bytes) -> Tamper:
    return lambda _: said


def tamper_by(random: Random) -> tuple[str, Tamper, int]:
    name = random.choice(list(VERBS))
    seed, times = random.getrandbits(64), random.choice((1, 1, 1, 2, 50))

    def tamper(reply: Any) -> bytes | None:
        chance = Random(seed)
        match chance.randrange(10):
            case 0:
                return mutated_bytes(chance, encoded(reply))
            case 1:
                return encoded(reply)[: chance.randrange(len(encoded(reply)))]
            case 2:
                return None
            case 3:
                return chance.choice(BROKEN)
            case 4:
                return encoded(reply) + encoded(chance.choice((reply, *OTHERS)))
            case 5:
                return encoded(chance.choice(PASSING))
            case _:
                return encoded(changed(chance, reply))

    return name, tamper, times


@given(by=seeded(tamper_by))
@effort(120)
def test_whatever_is_answered_a_verb_ends_and_the_store_works_again(
    runner: asyncio.Runner, tampered: Tampered, by: tuple[str, Tamper, int]
) -> None:
    tried(runner, tampered, *by)


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_is_troubled_by_a_reply_of_another_kind(
    runner: asyncio.Runner, tampered: Tampered, name: str
) -> None:
    for other in OTHERS:
        tried(runner, tampered, name, always(encoded(other)))


@pytest.mark.parametrize("broken", range(len(BROKEN)))
def test_what_is_no_reply_takes_bounded_time_and_memory(
    runner: asyncio.Runner, tampered: Tampered, broken: int
) -> None:
    with in_bounds(200_000, 2.0):
        found = tried(runner, tampered, "get", always(BROKEN[broken]))
    assert isinstance(found, StoreError) or found[0].job == tampered.job.job


def test_a_job_that_was_refused_is_never_said_to_be_accepted(
    runner: asyncio.Runner, tampered: Tampered
) -> None:
    """But where a server says so in so many words: a 1 for each job."""
    again = make_new({"a": 2}, job_id=tampered.job.job.job_id)

    async def insert() -> Any:
        try:
            return await tampered.store.insert([again])
        except StoreError as error:
            return error

    for other in (*OTHERS, *([one] for one in OTHERS)):
        if other == [1]:
            continue
        tampered.proxy.tamper(always(encoded(other)))
        found = runner.run(insert())
        assert isinstance(found, StoreError) or not isinstance(found[0], Applied), (other, found)
    tampered.proxy.stop_tampering()
    assert runner.run(insert()) == [Conflict()]
