"""The keys: every one is documented, all are in one slot, and what is removed leaves nothing."""

import re
from datetime import timedelta
from importlib.resources import files
from uuid import UUID

import msgspec
import pytest

from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.outcome import LEASE_EXPIRED, Failure, Outcome, Success
from gantline.contract.query import PruneRule
from gantline.contract.records import SESSIONS, RecordWrite
from gantline.contract.results import Applied
from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES, Progress
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import Transition
from gantline.manager.manager import Ending
from gantline.testing.conformance.bench import HOUR, PERMANENT, RETRYABLE, Bench
from gantline.testing.factories import make_new
from tests.harness import RedisHarness
from tests.servers.redis import RedisServer

DAY = timedelta(days=1)
# What a store knows for ever, however little it holds.
LASTING = {"format", "names", "last-event", "record-version", "leaders", "turn"}


def documented() -> set[str]:
    text = files("gantline.stores.redis.scripts").joinpath("keys.lua").read_text("utf-8")
    return {line.split()[1].partition(":")[0] for line in re.findall(r"(?m)^--   \S.*$", text)}


def names(server: RedisServer, harness: RedisHarness) -> set[str]:
    """The first part of every key of a store."""
    tag = harness.location.tag.decode()
    found = re.findall(rf"{re.escape(tag)}\S*", server.call("KEYS", f"*{tag}*").decode())
    assert all(key.startswith(f"{tag}:") for key in found)
    return {key.removeprefix(f"{tag}:").partition(":")[0] for key in found}


async def crash_twice(bench: Bench) -> None:
    await bench.submit("suspect", job_type="suspect")
    for _ in range(SUSPECT_AFTER_CRASHES):
        (run,) = await bench.claim("suspect", session="dead")
        await bench.store.expire_session("dead")
        await bench.store.apply([Transition.crashed(run, LEASE_EXPIRED, delay=timedelta(0))])


async def take_turns(bench: Bench) -> None:
    """Groups that wait, that are not due yet, that are full, and one of which a run ends."""
    gate = Gate("mail", per_second=1, burst=9)
    flow = (TypeFlow(job_type="grouped", running=1, gate=gate),)
    for group in ("a", "b", "c"):
        await bench.submit_many(2, job_type="grouped", group=group)
    await bench.claim("grouped", limit=2, flow=flow)
    await bench.submit(job_type="grouped", group="new")
    await bench.claim("grouped", limit=1, flow=flow)
    await bench.submit(job_type="grouped", group="later", delay=HOUR)
    await bench.submit(job_type="grouped")


async def live(bench: Bench) -> None:
    """Jobs in every status, with all that a job can have."""
    outcomes: tuple[Outcome, ...] = (Success(b"1"), PERMANENT, Failure(RETRYABLE.error))
    for number, outcome in enumerate(outcomes):
        key = DedupeKey(KeyKind.REQUEST, "default", "user", f"r{number}", b"body", DAY)
        new = make_new(
            number,
            idempotency_key=f"k{number}",
            subject_id=f"s{number}",
            created_by="me",
            correlation_id="order 7",
            parent_job_id=UUID(int=7),
            external_id=UUID(int=number),
            max_attempts=1,
            request_key=key,
        )
        await bench.store.insert([msgspec.structs.replace(new, logged=True)])
        (run,) = await bench.claim()
        await bench.store.progress([Progress(run.ref, 10.0, "begun", logged=True)])
        await bench.finish(run, outcome)
    once = DedupeKey(KeyKind.ONCE, "default", "scope", "mark", b"", DAY)
    write = RecordWrite("space", "key", b"1", time_to_live=HOUR)
    done = Success(once=(once,), records=(write,), follow_ups=(make_new("next"),))
    await bench.finish(await bench.start(), done)
    (follow_up,) = await bench.claim()
    await bench.cancel(await bench.submit())
    await bench.redrive((await bench.bring_to(JobStatus.FAILED))[0])
    await crash_twice(bench)
    await bench.store.lead("role", "me", lease=HOUR)
    await bench.store.write_records([RecordWrite("space", "lasting", b"1")])
    await bench.submit(expires_at=bench.clock.now() + DAY)
    await take_turns(bench)
    assert follow_up.job.data() == "next"


async def test_every_key_is_documented_and_every_documented_key_is_used(redis: RedisServer) -> None:
    harness = RedisHarness(redis)
    bench = await Bench.on(harness)
    await live(bench)
    # Only where writes wait for replicas.
    assert names(redis, harness) == documented() - {"replicated"}
    await bench.close()


async def test_when_all_is_removed_nothing_is_left(redis: RedisServer) -> None:
    harness = RedisHarness(redis)
    bench = await Bench.on(harness)
    await live(bench)
    bench.clock.advance(HOUR)
    suspects = await bench.claim("suspect", suspects=(1,))
    for run in [*await bench.claim(), *suspects, *await bench.store.expired(limit=100)]:
        await bench.settle(run, Success())
    while runs := await bench.claim("grouped"):
        for run in runs:
            await bench.settle(run, Success())
    bench.clock.advance(30 * DAY)
    assert await bench.store.expired(limit=1) == []
    rules = [PruneRule(status, bench.clock.now()) for status in JobStatus]
    await bench.store.prune(rules, limit=1000)
    sessions = [(SESSIONS, one.key) for one in await bench.store.read_records(SESSIONS)]
    left = [("space", "lasting"), *sessions]
    await bench.store.write_records([RecordWrite(*name, None) for name in left])
    assert names(redis, harness) == LASTING
    assert sum((await bench.recount()).values()) == 0
    await bench.close()


async def test_old_jobs_are_found_after_many_that_a_consumer_holds_back(
    redis: RedisServer,
) -> None:
    bench = await Bench.on(RedisHarness(redis))
    for jobs in (10, 900):
        await bench.submit_many(jobs)
        runs = await bench.claim(limit=jobs)
        await bench.manager.settle([Ending(run, Success()) for run in runs])
        bench.clock.shift(-HOUR)  # so those with the later numbers have ended earlier
    bench.clock.advance(10 * HOUR)
    rules = [PruneRule(JobStatus.COMPLETED, bench.clock.now())]
    assert (await bench.store.prune(rules, limit=5000, keep_events_after=10)).jobs == 10
    assert (await bench.store.prune(rules, limit=5000)).jobs == 900
    await bench.close()


async def test_a_claim_takes_a_thousand_at_most(redis: RedisServer) -> None:
    bench = await Bench.on(RedisHarness(redis))
    await bench.submit_many(1001)
    assert len(await bench.claim(limit=5000)) == 1000
    assert len(await bench.claim(limit=5000)) == 1
    await bench.close()


@pytest.mark.parametrize("jobs", [600, 1300])
async def test_of_many_in_one_call_the_first_wins_over_all_batches(
    redis: RedisServer, jobs: int
) -> None:
    bench = await Bench.on(RedisHarness(redis))
    new = [make_new(number, idempotency_key=f"k{number % 300}") for number in range(jobs)]
    answers = await bench.store.insert(new)
    assert [isinstance(answer, Applied) for answer in answers] == [
        number < 300 for number in range(jobs)
    ]
    await bench.close()


@pytest.mark.parametrize(("runs", "follow_ups"), [(1, 4500), (100, 45)])
async def test_one_step_may_carry_thousands_of_jobs(
    redis: RedisServer, runs: int, follow_ups: int
) -> None:
    """Lua hands 8,000 words at most to a command; a script that failed at it would leave half."""
    bench = await Bench.on(RedisHarness(redis))
    await bench.submit_many(runs)
    endings = [
        Ending(run, Success(follow_ups=tuple(make_new(number) for number in range(follow_ups))))
        for run in await bench.claim(limit=runs)
    ]
    assert all(answer.accepted for answer in await bench.manager.settle(endings))
    (lane,) = await bench.store.counts(tenant_id=None)
    assert (lane.completed, lane.queued) == (runs, runs * follow_ups)
    assert len(await bench.claim(limit=1000)) == 1000
    await bench.close()
