"""The scheduler over every store: nothing twice, nothing forgotten, whatever breaks."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gantline.contract.errors import (
    InvalidInput,
    NotThere,
    ScheduleConflict,
    StoreClosed,
    StoreUnavailable,
    VersionMismatch,
)
from gantline.contract.records import RecordWrite
from gantline.manager.records import all_records
from gantline.manager.sessions import Session, register
from gantline.manager.switches import Switches
from gantline.moving.closing import reopen
from gantline.schedules.recurrence import Cron, Every
from gantline.schedules.schedule import Schedule
from gantline.schedules.schedules import (
    DUE,
    SCHEDULES,
    all_schedules,
    due_key,
    key_of,
    read_schedules,
    synchronise,
)
from gantline.schedules.upkeep import mark_of, settle
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, Crash, CrashPoint, intercepted, losing_answers
from tests.harness import MemoryHarness, PostgresHarness, RedisHarness, SqliteHarness
from tests.moving_stores import close
from tests.schedules.schedule_bench import (
    LEASE,
    MINUTE,
    Bench,
    check_none_doubled_none_missed,
    edited,
)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    match request.param:
        case "memory":
            harness: Any = MemoryHarness()
        case "sqlite":
            harness = SqliteHarness()
        case "redis":
            harness = RedisHarness(request.getfixturevalue("redis"))
        case _:
            harness = PostgresHarness(request.getfixturevalue("postgres"))
    yield Bench(harness, await harness.open())
    await harness.close()


# -- firing -------------------------------------------------------------------------------------


async def test_a_run_is_made_when_it_is_due_and_not_before(bench: Bench) -> None:
    made = await bench.add()
    assert made.record.next_run == bench.clock.now() + MINUTE
    assert (await bench.fire()).wait == MINUTE
    assert not await bench.jobs()
    bench.clock.advance(MINUTE)
    assert (await bench.fire()).wait == MINUTE
    (job,) = await bench.jobs()
    assert job.job.job_id == made.record.job_id_of(made.record.next_run)
    assert job.job.scheduled_at == made.record.next_run
    stored = await bench.stored()
    assert stored.record.last_job_id == job.job.job_id
    assert [fire.job_id for fire in stored.record.fires] == [job.job.job_id]


async def test_where_there_are_no_schedules_nobody_leads_and_nothing_is_written(
    bench: Bench,
) -> None:
    calls: list[str] = []

    async def noting(verb: str, call: Call) -> Any:
        calls.append(verb)
        return await call()

    look = await bench.scheduler(intercepted(bench.store, noting)).run_once()
    assert look.is_empty
    assert calls == ["read_records", "read_records"]


async def test_a_look_with_nothing_due_reads_the_head_of_the_index_only(bench: Bench) -> None:
    for number in range(30):
        await bench.add(f"s{number}")
    scheduler = bench.scheduler()
    await scheduler.run_once()
    calls: list[str] = []

    async def noting(verb: str, call: Call) -> Any:
        calls.append(verb)
        return await call()

    scheduler._store = intercepted(bench.store, noting)
    await scheduler.run_once()
    assert calls == ["read_records", "ping", "read_records"]


async def test_only_one_process_leads_and_the_next_does_when_it_resigns(bench: Bench) -> None:
    await bench.add()
    one, other = bench.scheduler(), bench.scheduler()
    assert (await one.run_once()).leads
    assert not (await other.run_once()).leads
    await one.resign()
    assert (await other.run_once()).leads


async def test_runs_that_were_missed_in_a_downtime_are_made_by_policy(bench: Bench) -> None:
    policies = ("coalesce", "catch_up", "skip")
    for policy in policies:
        await bench.add(policy, misfire=policy)
    bench.clock.advance(5 * MINUTE + timedelta(seconds=59, microseconds=999_999) + 2 * LEASE)
    now = bench.clock.now()
    await bench.fire()
    assert [len(await bench.instants(policy)) for policy in policies] == [1, 6, 1]
    bench.clock.advance(timedelta(hours=1))
    await bench.fire()
    assert [len(await bench.instants(policy)) for policy in policies] == [2, 66, 2]
    for policy in policies:
        stored = await bench.stored(policy)
        assert stored.record.next_run is not None
        assert now < stored.record.next_run <= bench.clock.now() + MINUTE


async def test_a_schedule_that_has_ended_is_kept_and_never_due(bench: Bench) -> None:
    await bench.add(end=bench.clock.now() + 2 * MINUTE)
    bench.clock.advance(10 * MINUTE)
    await bench.fire()
    assert len(await bench.instants()) == 2
    assert (await bench.stored()).record.next_run is None
    assert not await all_records(bench.store, DUE)
    assert (await bench.fire()).wait is None


async def test_overlap_is_told_by_the_last_job(bench: Bench) -> None:
    for policy in ("allow", "skip", "one_waiting"):
        await bench.add(policy, overlap=policy)
    for _ in range(3):
        bench.clock.advance(MINUTE)
        await bench.fire()
    fired = [len(await bench.jobs(policy)) for policy in ("allow", "skip", "one_waiting")]
    assert fired == [3, 1, 1]
    reasons = [fire.reason for fire in (await bench.stored("skip")).record.fires]
    assert reasons == ["the last run has not begun"] * 2 + [""]
    manager = bench.schedules._manager
    jobs = [(await bench.jobs(policy))[0].job.job_id for policy in ("skip", "one_waiting")]
    await manager.cancel(jobs, tenant_id=None, actor="op")
    bench.clock.advance(MINUTE)
    await bench.fire()
    fired = [len(await bench.jobs(policy)) for policy in ("allow", "skip", "one_waiting")]
    assert fired == [4, 2, 2]


async def test_a_job_that_may_not_be_submitted_now_is_noted_with_the_reason(bench: Bench) -> None:
    switches = Switches(bench.store)
    await switches.disable_type("work")
    await bench.add()
    bench.clock.advance(MINUTE)
    await bench.fire()
    assert not await bench.jobs()
    (fire,) = (await bench.stored()).record.fires
    assert (fire.job_id, fire.reason) == (None, "The job type 'work' is switched off.")
    await switches.disable_type("work", disabled=False)
    bench.clock.advance(MINUTE)
    await bench.fire()
    assert len(await bench.jobs()) == 1


async def test_one_that_cannot_be_planned_harms_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader without time zones, for example."""
    made = await bench.add("broken")
    await bench.add("sound")
    broken = edited(made, recurrence=Cron("0 0 * * *", "Mars/Olympus"))
    body = bench_record(made, broken)
    await bench.store.write_records([RecordWrite(SCHEDULES, made.key, body)])
    scheduler = bench.scheduler()
    for _ in range(3):
        bench.clock.advance(MINUTE)
        await scheduler.run_once()
    assert len(await bench.jobs("sound")) == 3
    assert caplog.text.count("cannot be fired") == 1


@pytest.mark.parametrize("new", [b'"misfire":"think_twice"', b'"misfire":"skip","unheardOf":1'])
async def test_one_that_cannot_be_read_harms_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, new: bytes
) -> None:
    """A newer Gantline has written it, say, while workers of the old one still live; who does not
    know a field must not write the definition without it."""
    newer = await bench.add("newer")
    await bench.add("sound")
    (before,) = [one for one in await all_records(bench.store, SCHEDULES) if one.key == newer.key]
    unknown = before.value.replace(b'"misfire":"catch_up"', new)
    assert unknown != before.value
    await bench.store.write_records([RecordWrite(SCHEDULES, newer.key, unknown)])
    scheduler = bench.scheduler(upkeep_every=timedelta(0))
    for _ in range(20):
        bench.clock.advance(MINUTE)
        await scheduler.run_once()
    assert len(await bench.jobs("sound")) == 20
    assert caplog.text.count("cannot be read") == 1
    page = await bench.schedules.page("default", after="", limit=1)
    assert [one.record.schedule.name for one in page] == ["sound"]
    await bench.store.write_records([RecordWrite(SCHEDULES, newer.key, before.value)])
    await bench.fire()
    await bench.fire()
    assert len(await bench.jobs("newer")) == 20  # whoever can read it goes on where it stood


def bench_record(stored: Any, schedule: Schedule) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(stored.record, schedule=schedule))


async def test_many_that_are_due_at_once_are_fired_in_pages(bench: Bench) -> None:
    names = [f"s{number:04d}" for number in range(250)]
    for name in names:
        await bench.add(name)
    bench.clock.advance(MINUTE)
    assert (await bench.fire()).wait == MINUTE
    for name in names[::50]:
        assert len(await bench.instants(name)) == 1
    assert len(await all_records(bench.store, DUE)) == 250


async def test_definitions_are_read_by_key_whatever_lies_between_them(bench: Bench) -> None:
    names = [f"n{number}" for number in range(120)] + ["n1-x", "n1.x", "n1:x", "n10-", "N"]
    for name in names:
        await bench.add(name)
    everything = {stored.key async for stored in all_schedules(bench.store)}
    assert everything == {key_of("default", name) for name in names}
    for chosen in (names, names[::7], names[:1], ["n1", "n10", "n11", "missing"], ["missing"]):
        keys = {key_of("default", name) for name in chosen}
        found = await read_schedules(bench.store, keys)
        assert set(found) == keys & everything
        assert all(found[key].key == key for key in found)


async def test_tenants_do_not_meet_whatever_their_names(bench: Bench) -> None:
    tenants = ("a", "a/b", "a%2Fb", "a%", "ä b")
    for tenant in tenants:
        await bench.add("same", tenant_id=tenant)
    for tenant in tenants:
        (only,) = await bench.schedules.page(tenant, after="", limit=10)
        assert only.record.schedule.tenant_id == tenant
    bench.clock.advance(MINUTE)
    await bench.fire()
    assert sorted(job.job.tenant_id for job in await bench.jobs("same")) == sorted(tenants)


# -- nothing twice, nothing forgotten -----------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_leader_may_die_at_any_step(bench: Bench, after: bool) -> None:
    made = [await bench.add("a"), await bench.add("b", Every(120)), await bench.add("c", Every(30))]
    step, reached = 0, True
    while reached:
        step += 1
        bench.clock.advance(MINUTE)
        point = CrashPoint(at=step, after=after)
        with suppress(Crash):
            await bench.scheduler(point.wrap(bench.store)).run_once()
        reached = point.reached
        bench.clock.advance(LEASE)
        await bench.check_index()
        await bench.fire()
    assert step > 10
    await check_none_doubled_none_missed(bench, made)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("action", ["create", "replace", "pause", "resume", "delete", "run"])
async def test_whoever_changes_a_schedule_may_die_at_any_step(
    bench: Bench, action: str, after: bool
) -> None:
    """What was there before, or what was to be: in both cases the index is whole."""
    step, reached = 0, True
    while reached:
        step += 1
        name = f"s{step}"
        if action != "create":
            stored = await bench.add(name)
        if action == "resume":
            await bench.schedules.pause("default", name)
        point = CrashPoint(at=step, after=after)
        dying = Bench(bench.harness, point.wrap(bench.store))
        with suppress(Crash):
            match action:
                case "create":
                    await dying.add(name)
                case "replace":
                    changed = edited(stored, recurrence=Every(90), priority=1)
                    await dying.schedules.replace(changed, origin="api")
                case "pause":
                    await dying.schedules.pause("default", name)
                case "resume":
                    await dying.schedules.pause("default", name, paused=False)
                case "delete":
                    await dying.schedules.delete("default", name, origin="api")
                case "run":
                    await dying.schedules.run("default", name, owner="me")
        reached = point.reached
        await bench.check_index()
    assert step > 2
    due = {stored.key async for stored in all_schedules(bench.store) if stored.record.next_run}
    bench.clock.advance(5 * MINUTE)
    await bench.fire()
    found = await read_schedules(bench.store, due)
    assert all(stored.record.fires for stored in found.values())
    bench.clock.advance(timedelta(hours=1))
    await bench.fire()
    entries = await all_records(bench.store, DUE)
    assert len(entries) == len(due)  # what was left over is gone


async def test_a_writer_that_stood_still_between_its_two_writes_is_found_again(
    bench: Bench,
) -> None:
    """Its entry was deleted as one that nobody names; its definition came later."""
    await bench.add("other")
    going_on = asyncio.Event()
    stands = asyncio.Event()
    writes = 0

    async def stopping(verb: str, call: Call) -> Any:
        nonlocal writes
        writes += verb == "write_records"
        if verb == "write_records" and writes == 2:
            stands.set()
            await going_on.wait()
        return await call()

    slow = Bench(bench.harness, intercepted(bench.store, stopping))
    adding = asyncio.create_task(slow.add("slow"))
    await stands.wait()
    bench.clock.advance(15 * MINUTE)
    await bench.fire()
    assert not [one for one in await all_records(bench.store, DUE) if "slow" in one.key]
    going_on.set()
    await adding
    await bench.fire()  # a new leader looks through all of them; one that goes on, once a minute
    await bench.fire()
    await bench.check_index()
    assert len(await bench.instants("slow")) == 15


async def test_an_entry_that_nobody_names_is_not_deleted_at_once(bench: Bench) -> None:
    await bench.add()
    stray = due_key(bench.clock.now() + MINUTE, key_of("default", "to-come"))
    await bench.store.write_records([RecordWrite(DUE, stray, b"true")])
    bench.clock.advance(5 * MINUTE)
    await bench.fire()
    assert stray in {record.key for record in await all_records(bench.store, DUE)}
    bench.clock.advance(10 * MINUTE)
    await bench.fire()
    assert stray not in {record.key for record in await all_records(bench.store, DUE)}


async def test_every_answer_may_be_lost(bench: Bench) -> None:
    made = [await bench.add("a"), await bench.add("b", Every(30))]
    scheduler = bench.scheduler(losing_answers(bench.store))
    for _ in range(5):
        bench.clock.advance(MINUTE)
        await scheduler.run_once()
    assert await check_none_doubled_none_missed(bench, made) == 5 + 10


async def test_a_store_that_is_away_is_tried_again_and_nothing_is_lost(bench: Bench) -> None:
    made = [await bench.add()]
    is_away = False

    async def failing(verb: str, call: Call) -> Any:
        if is_away and verb != "read_records":
            raise StoreUnavailable("The store is away.")
        return await call()

    scheduler = bench.scheduler(intercepted(bench.store, failing))
    for is_away in (False, True, True, False):  # noqa: B007  # read by `failing`
        bench.clock.advance(MINUTE)
        with suppress(StoreUnavailable):
            await scheduler.run_once()
    assert await check_none_doubled_none_missed(bench, made) == 4


async def test_a_leader_that_slept_past_the_pruning_of_its_jobs_fires_none_again(
    bench: Bench,
) -> None:
    await bench.add()
    bench.clock.advance(MINUTE)
    slept, woken = asyncio.Event(), asyncio.Event()

    async def sleeping(verb: str, call: Call) -> Any:
        if verb == "insert":
            slept.set()
            await woken.wait()
        return await call()

    old = asyncio.create_task(bench.scheduler(intercepted(bench.store, sleeping)).run_once())
    await slept.wait()
    await bench.fire()
    (job,) = await bench.jobs()
    manager = bench.schedules._manager
    await manager.cancel([job.job.job_id], tenant_id=None, actor="op")
    await manager.delete([job.job.job_id], tenant_id=None)
    assert not await bench.jobs()
    woken.set()
    await old
    assert not await bench.jobs()
    assert len((await bench.stored()).record.fires) == 1


async def _storm(bench: Bench, *, schedules: int, minutes: int, seed: int) -> int:
    """Two leaders at once, deaths at random steps, a clock that jumps; count what was fired."""
    chance = random.Random(seed)
    made = [await bench.add(f"s{number}", Every(60)) for number in range(schedules)]
    other = await bench.harness.open()
    latest, jump = bench.clock.now(), timedelta(hours=chance.choice((-1, 1)))
    for _ in range(minutes):
        bench.clock.advance(MINUTE)
        if chance.random() < 0.1:
            bench.clock.shift(jump)
            jump = -jump
        latest = max(latest, bench.clock.now())
        await bench.clear_the_lead()
        leaders = [bench.scheduler(_mortal(store, chance)) for store in (bench.store, other)]
        for leader in leaders:  # both think that they lead
            leader._term, leader._extended_at = 1, float("inf")
        results = await asyncio.gather(
            *(leader.run_once() for leader in leaders), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Crash):
                raise result
    bench.clock.shift(latest + MINUTE - bench.clock.now())
    await bench.fire()
    return await check_none_doubled_none_missed(bench, made)


def _mortal(store: Any, chance: random.Random) -> Any:
    if chance.random() < 0.5:
        return store
    left, after = chance.randint(1, 12), chance.random() < 0.5

    async def around(verb: str, call: Call) -> Any:
        nonlocal left
        left -= 1
        if left != 0:
            return await call()
        if after:
            await call()
        raise Crash

    return intercepted(store, around)


@pytest.mark.parametrize("seed", range(3))
async def test_two_leaders_and_deaths_and_a_jumping_clock(bench: Bench, seed: int) -> None:
    assert await _storm(bench, schedules=5, minutes=15, seed=seed) > 0


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_over_ten_thousand_fires_none_is_doubled_and_none_missed(bench: Bench) -> None:
    fired = await _storm(bench, schedules=75, minutes=200, seed=7)
    print(f"{fired} fired, none doubled, none missed")  # noqa: T201  # shown with -rP
    assert fired >= 10_000


# -- changing -----------------------------------------------------------------------------------


async def test_a_name_is_taken_once(bench: Bench) -> None:
    await bench.add()
    with pytest.raises(ScheduleConflict, match="already"):
        await bench.add()


async def test_a_tenant_has_no_more_schedules_than_it_may(bench: Bench) -> None:
    bench.schedules._most = 3
    for name in ("a", "b", "c"):
        await bench.add(name)
    with pytest.raises(InvalidInput, match="has 3 schedules, and may have 3"):
        await bench.add("d")
    await bench.add("d", tenant_id="another")
    await bench.schedules.delete("default", "a", origin="api")
    await bench.add("d")


async def test_what_code_declares_counts_and_is_never_refused(bench: Bench) -> None:
    bench.schedules._most = 1
    await _declare(bench, _declared("a"), _declared("b"))
    assert await bench.stored("b")
    with pytest.raises(InvalidInput, match="has 2 schedules"):
        await bench.add("c")


async def test_more_schedules_than_a_page_are_counted(bench: Bench) -> None:
    writes = [
        RecordWrite(SCHEDULES, key_of("default", f"s{number:04d}"), b"{}") for number in range(1001)
    ]
    await bench.store.write_records(writes)
    bench.schedules._most = 1002
    await bench.add("one-more")
    with pytest.raises(InvalidInput, match="has 1002 schedules"):
        await bench.add("too-many")


async def test_a_schedule_without_a_run_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="has no run any more"):
        await bench.add(end=bench.clock.now())


async def test_new_times_begin_now_and_old_ones_are_kept(bench: Bench) -> None:
    stored = await bench.add()
    assert stored.record.next_run == bench.clock.now() + MINUTE
    bench.clock.advance(10 * MINUTE)
    same = await bench.schedules.replace(edited(stored, priority=0), origin="api")
    assert same.record.next_run == stored.record.next_run  # still to be made
    other = await bench.schedules.replace(edited(stored, recurrence=Every(600)), origin="api")
    assert other.record.next_run == bench.clock.now() + 10 * MINUTE
    await bench.fire()
    assert not await bench.jobs()


async def test_a_paused_schedule_fires_nothing_and_what_passed_meanwhile_is_no_miss(
    bench: Bench,
) -> None:
    await bench.add()
    await bench.schedules.pause("default", "s")
    bench.clock.advance(10 * MINUTE)
    await bench.fire()
    assert not await bench.jobs()
    resumed = await bench.schedules.pause("default", "s", paused=False)
    assert resumed.record.next_run == bench.clock.now() + MINUTE
    bench.clock.advance(MINUTE)
    await bench.fire()
    assert len(await bench.jobs()) == 1


async def test_a_deleted_schedule_fires_nothing_and_a_new_one_of_its_name_is_another(
    bench: Bench,
) -> None:
    first = await bench.add()
    bench.clock.advance(MINUTE)
    await bench.fire()
    await bench.schedules.delete("default", "s", origin="api")
    with pytest.raises(NotThere):
        await bench.stored()
    bench.clock.advance(MINUTE)
    assert (await bench.fire()).is_empty
    second = await bench.add()
    assert second.record.id != first.record.id
    bench.clock.advance(MINUTE)
    await bench.fire()
    assert len(await bench.jobs()) == 2


async def test_a_version_that_has_moved_is_refused(bench: Bench) -> None:
    stored = await bench.add()
    await bench.schedules.pause("default", "s", version=stored.version)
    with pytest.raises(VersionMismatch):
        await bench.schedules.pause("default", "s", paused=False, version=stored.version)
    with pytest.raises(VersionMismatch):
        await bench.schedules.replace(stored.record.schedule, origin="api", version=stored.version)
    with pytest.raises(VersionMismatch):
        await bench.schedules.delete("default", "s", origin="api", version=stored.version)


async def test_a_run_by_hand_is_another_job_and_says_who_asked(bench: Bench) -> None:
    stored = await bench.add()
    answer = await bench.schedules.run("default", "s", owner="user:me")
    (job,) = await bench.jobs()
    assert job.job.job_id == answer.job_id
    assert job.job.created_by == "user:me"
    after = await bench.stored()
    assert after.record.next_run == stored.record.next_run
    assert [(fire.by, fire.job_id) for fire in after.record.fires] == [("user:me", answer.job_id)]
    bench.clock.advance(MINUTE)
    await bench.fire()
    assert len(await bench.jobs()) == 2


@pytest.mark.parametrize("action", ["pause", "delete"])
async def test_what_is_changed_while_a_leader_fires_stays_changed(
    bench: Bench, action: str
) -> None:
    await bench.add("other", Every(3600))
    await bench.add()

    async def meanwhile(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "insert" and action == "pause":
            await bench.schedules.pause("default", "s")
        elif verb == "insert":
            await bench.schedules.delete("default", "s", origin="api")
        return answer

    bench.clock.advance(MINUTE)
    await bench.scheduler(intercepted(bench.store, meanwhile)).run_once()
    left = [one.record async for one in all_schedules(bench.store)]
    changed = [one for one in left if one.schedule.name == "s"]
    assert [(one.paused, one.next_run) for one in changed] == (
        [(True, None)] if action == "pause" else []
    )
    bench.clock.advance(5 * MINUTE)
    await bench.fire()
    assert len(await bench.jobs()) == 1


async def test_an_edit_while_a_leader_fires_makes_no_second_job(bench: Bench) -> None:
    """The leader has submitted the job and dies; the payload is edited; the next one comes."""
    stored = await bench.add()
    bench.clock.advance(MINUTE)

    async def dying(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "insert":
            raise Crash
        return answer

    with suppress(Crash):
        await bench.scheduler(intercepted(bench.store, dying)).run_once()
    (job,) = await bench.jobs()
    await bench.schedules.replace(edited(stored, payload=msgspec.Raw(b"[1]")), origin="api")
    await bench.fire()
    assert [one.job.job_id for one in await bench.jobs()] == [job.job.job_id]
    assert (await bench.stored()).record.last_job_id == job.job.job_id
    bench.clock.advance(MINUTE)
    await bench.fire()
    assert [bytes(one.job.payload) for one in await bench.jobs()] == [b"null", b"[1]"]


# -- declared in code ---------------------------------------------------------------------------


def _session(
    name: str, *schedules: str, types: tuple[str, ...] = ("work",), mark: str = ""
) -> Session:
    now = FakeClock().now()
    return Session(
        session_id=name,
        host="h",
        pid=1,
        version="1",
        started_at=now,
        last_seen_at=now,
        queues={},
        job_types=types,
        schedules=tuple(key_of("default", one) for one in schedules),
        schedules_mark=mark,
    )


async def _declare(bench: Bench, *schedules: Schedule) -> None:
    await synchronise(bench.schedules, bench.store, schedules)


def _declared(name: str = "s", **options: Any) -> Schedule:
    return Schedule(**{"name": name, "recurrence": Every(60), "job_type": "work", **options})


async def test_what_code_declares_is_made_once_and_kept(bench: Bench) -> None:
    await _declare(bench, _declared())
    first = await bench.stored()
    bench.clock.advance(10 * MINUTE)
    await _declare(bench, _declared())
    assert await bench.stored() == first  # what was missed is still to be made


async def test_what_code_declares_anew_is_changed_and_its_pause_is_kept(bench: Bench) -> None:
    await _declare(bench, _declared())
    await bench.schedules.pause("default", "s")
    await _declare(bench, _declared(recurrence=Every(30)))
    stored = await bench.stored()
    assert stored.record.paused
    assert stored.record.schedule.recurrence == Every(30)
    resumed = await bench.schedules.pause("default", "s", paused=False)
    assert resumed.record.next_run == bench.clock.now() + timedelta(seconds=30)


async def test_many_workers_may_start_at_once(bench: Bench) -> None:
    declared = [_declared(f"s{number}") for number in range(5)]
    await asyncio.gather(*(_declare(bench, *declared) for _ in range(8)))
    assert len([one async for one in all_schedules(bench.store)]) == 5
    await bench.check_index()


async def test_what_code_has_dropped_goes_when_no_worker_has_it_any_more(bench: Bench) -> None:
    await _declare(bench, _declared("kept"), _declared("dropped"))
    await bench.add("by-hand")
    await bench.fire()
    assert await bench.stored("dropped")  # no worker lives: nothing is known
    await register(bench.store, _session("old", "kept", "dropped"))
    await register(bench.store, _session("new", "kept"))
    await register(bench.store, _session("elsewhere", types=("other",)))
    await bench.fire()
    assert await bench.stored("dropped")  # a worker of the old code lives
    await bench.store.write_records([RecordWrite("sessions", "old", None)])
    await bench.fire()
    with pytest.raises(NotThere):
        await bench.stored("dropped")
    assert await bench.stored("kept")
    assert await bench.stored("by-hand")


async def test_only_code_changes_and_removes_what_code_declares(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await _declare(bench, _declared())
    await register(bench.store, _session("worker", "s"))
    with pytest.raises(ScheduleConflict, match="declared in code"):
        await bench.schedules.replace(_declared(priority=0), origin="api")
    with pytest.raises(ScheduleConflict, match="declared in code"):
        await bench.schedules.delete("default", "s", origin="cli")
    await bench.add("by-hand")
    await _declare(bench, _declared("by-hand", priority=0))
    assert (await bench.stored("by-hand")).record.origin == "api"
    assert "made by hand" in caplog.text


async def test_what_code_has_dropped_with_its_job_can_be_removed_by_hand(bench: Bench) -> None:
    """No worker has the job, so nobody can tell that it was dropped; but whoever asks knows."""
    await _declare(bench, _declared())
    await register(bench.store, _session("worker", types=("other",)))
    await bench.fire()
    await bench.schedules.delete("default", "s", origin="api")
    with pytest.raises(NotThere):
        await bench.stored()


async def test_what_the_last_worker_of_old_code_has_changed_is_changed_back(bench: Bench) -> None:
    """In a rolling deploy, a worker of the old code was started once more, behind all others."""
    old, new = [_declared(recurrence=Every(60))], [_declared(recurrence=Every(30))]
    await _declare(bench, *new)
    await register(bench.store, _session("new", "s", mark=mark_of(new)))
    await _declare(bench, *old)
    await register(bench.store, _session("old", "s", mark=mark_of(old)))
    for declared in (new, old):
        await settle(bench.schedules, bench.store, declared)
        assert (await bench.stored()).record.schedule == old[0]  # there are two opinions
    await bench.store.write_records([RecordWrite("sessions", "old", None)])
    await settle(bench.schedules, bench.store, new)
    assert (await bench.stored()).record.schedule == new[0]


async def test_what_settles_leaves_alone_what_was_made_by_hand(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.add()
    await settle(bench.schedules, bench.store, [_declared(recurrence=Every(30))])
    assert (await bench.stored()).record.schedule.recurrence == Every(60)
    assert not caplog.text


async def test_the_next_runs_can_be_told(bench: Bench) -> None:
    stored = await bench.add(end=bench.clock.now() + 3 * MINUTE)
    start = bench.clock.now()
    assert stored.record.upcoming(5) == [start + number * MINUTE for number in (1, 2, 3)]
    paused = await bench.schedules.pause("default", "s")
    assert paused.record.upcoming(5) == []


async def test_a_closed_store_fires_nothing_until_it_is_open(bench: Bench) -> None:
    await bench.add()
    bench.clock.advance(MINUTE)
    await close(bench.store)
    scheduler = bench.scheduler()
    assert not (await scheduler.run_once()).leads
    assert not await bench.jobs()
    await reopen(bench.store)
    scheduler._switches.invalidate()
    assert (await scheduler.run_once()).leads
    assert len(await bench.jobs()) == 1


async def test_in_a_closed_store_no_schedule_is_changed(bench: Bench) -> None:
    """They are being copied, or were moved: what is changed here would be lost."""
    stored = await bench.add()
    await close(bench.store)
    bench.schedules._manager.switches.invalidate()
    for change in (
        lambda: bench.add("another"),
        lambda: bench.schedules.replace(edited(stored, priority=0), origin="api"),
        lambda: bench.schedules.pause("default", "s"),
        lambda: bench.schedules.delete("default", "s", origin="api"),
        lambda: bench.schedules.run("default", "s", owner="me"),
    ):
        with pytest.raises(StoreClosed):
            await change()
    assert [one async for one in all_schedules(bench.store)] == [stored]


async def test_what_code_declares_is_stored_when_a_closed_store_is_opened(bench: Bench) -> None:
    await close(bench.store)
    await _declare(bench, _declared())
    await settle(bench.schedules, bench.store, [_declared()])
    assert not [one async for one in all_schedules(bench.store)]
    await reopen(bench.store)
    bench.schedules._manager.switches.invalidate()
    await settle(bench.schedules, bench.store, [_declared()])
    assert await bench.stored()
