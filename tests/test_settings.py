"""What can be set, where it counts, and that what makes no sense is refused at the start."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gantline import (
    AuditSettings,
    Backoff,
    Context,
    Fixed,
    Gantline,
    InvalidInput,
    JobDefaults,
    JobGroup,
    JobNotCompleted,
    JobStatus,
    JobType,
    Linear,
    Permanent,
    Retention,
    Retry,
    Snooze,
    StorageSettings,
    WorkerSettings,
)
from gantline.contract.classify import classify
from gantline.contract.outcome import Failure, Snoozed
from gantline.contract.policy import Policy
from gantline.contract.retention import IN_MEMORY, ON_DISK
from gantline.manager.maintenance import Maintenance
from gantline.manager.pruner import Pruner
from gantline.worker.lease_keeper import LeaseKeeper
from gantline.worker.slots import Slots
from scripts.docs.reference.settings import fields_of
from scripts.docs.reference.settings import page as settings_page

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
NAN = float("nan")


class NoPaper(Exception): ...


def by_paper(error: BaseException) -> BaseException | None:
    match error:
        case NoPaper():
            return Permanent("NO_PAPER", "There is no paper.")
        case KeyError():
            return Snooze(HOUR)
        case LookupError():
            return ConnectionError("taken for one")
    return None


group = JobGroup()


@group.job("prints", run_in="process", retry=Fixed(attempts=1, every=SECOND))
def prints(page: int) -> int:
    raise NoPaper if page else ValueError


# -- the groups -----------------------------------------------------------------------------------


def test_the_application_takes_few_parameters() -> None:
    assert len(inspect.signature(Gantline).parameters) <= 11


@pytest.mark.parametrize(
    "kind", [JobDefaults, WorkerSettings, StorageSettings, Retention, AuditSettings]
)
def test_every_field_is_told_on_the_page_of_settings(kind: type[msgspec.Struct]) -> None:
    page = settings_page()
    assert f"### {kind.__name__}" in page
    for name, _, meaning in fields_of(kind):
        assert meaning, f"{kind.__name__}.{name} has no docstring"
        assert meaning in page


REFUSED: list[Callable[[], object]] = [
    lambda: WorkerSettings(lease=SECOND / 2),
    lambda: WorkerSettings(lease=40_000 * DAY),
    lambda: WorkerSettings(lease="long"),  # type: ignore[arg-type]
    lambda: WorkerSettings(lease=30 * SECOND, renew_every=30 * SECOND),
    lambda: WorkerSettings(lease=30 * SECOND, renew_every=16 * SECOND),
    lambda: WorkerSettings(renew_every=0 * SECOND),
    lambda: WorkerSettings(renew_every=-SECOND),
    lambda: WorkerSettings(poll=0 * SECOND),
    lambda: WorkerSettings(poll=NAN),  # type: ignore[arg-type]
    lambda: WorkerSettings(drain=-SECOND),
    lambda: WorkerSettings(deadline_grace=-SECOND),
    lambda: WorkerSettings(maintain_every=0 * SECOND),
    lambda: WorkerSettings(lease=None),  # type: ignore[arg-type]
    lambda: WorkerSettings(poll=None),  # type: ignore[arg-type]
    lambda: WorkerSettings(drain=None),  # type: ignore[arg-type]
    lambda: WorkerSettings(deadline_grace=None),  # type: ignore[arg-type]
    lambda: WorkerSettings(queues="default:10"),  # type: ignore[arg-type]
    lambda: WorkerSettings(queues={"default": None}),  # type: ignore[dict-item]
    lambda: JobDefaults(timeout=None),  # type: ignore[arg-type]
    lambda: JobDefaults(payload_limit=None),  # type: ignore[arg-type]
    lambda: JobDefaults(max_crashes=None),  # type: ignore[arg-type]
    lambda: JobDefaults(hold_key=None),  # type: ignore[arg-type]
    lambda: WorkerSettings(queues={"default": 0}),
    lambda: WorkerSettings(queues={"default": -1}),
    lambda: WorkerSettings(slots=0),
    lambda: WorkerSettings(slots=NAN),  # type: ignore[arg-type]
    lambda: WorkerSettings(slots=True),
    lambda: WorkerSettings(claim_batch=0),
    lambda: WorkerSettings(claim_batch=-3),
    lambda: WorkerSettings(recycle_after_jobs=0),
    lambda: WorkerSettings(recycle_above_bytes=0),
    lambda: Retention(completed=-SECOND),
    lambda: Retention(failed=40_000 * DAY),
    lambda: Retention(poisoned=NAN),  # type: ignore[arg-type]
    lambda: Retention(cancelled=-7),  # type: ignore[arg-type]
    lambda: StorageSettings(no_handler_grace=-SECOND),
    lambda: StorageSettings(durability="eternal"),  # type: ignore[arg-type]
    lambda: AuditSettings(retention=timedelta(minutes=59)),
    lambda: AuditSettings(retention=-DAY),
    lambda: JobDefaults(payload_limit=0),
    lambda: JobDefaults(payload_limit=NAN),  # type: ignore[arg-type]
    lambda: Gantline("memory://", defaults=JobDefaults(trace_runs="sideways")),  # type: ignore[arg-type]
]
OF_TYPES: list[dict[str, Any]] = [
    {"timeout": timedelta(0)},
    {"timeout": -SECOND},
    {"timeout": "10 minutes"},
    {"max_crashes": 0},
    {"max_crashes": -1},
    {"max_crashes": NAN},
    {"max_snoozes": -1},
    {"max_snoozes": NAN},
    {"hold_key": -SECOND},
    {"hold_key": NAN},
]
OF_ONE_TYPE: list[dict[str, Any]] = [{"concurrency": 0}, {"concurrency": -1}, {"max_depth": -1}]


@pytest.mark.parametrize("make", REFUSED)
def test_what_makes_no_sense_is_refused_with_what_would_do(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.next_step


def test_a_span_below_zero_is_shown_as_such() -> None:
    with pytest.raises(InvalidInput, match=r"drain is -1 s\. .* from 0 s to 36500 days"):
        WorkerSettings(drain=-SECOND)
    with pytest.raises(InvalidInput, match=r"drain is -2\.5 days"):
        WorkerSettings(drain=-60 * timedelta(hours=1))


@pytest.mark.parametrize("options", [*OF_TYPES, *OF_ONE_TYPE], ids=str)
def test_what_makes_no_sense_for_a_type_is_refused_where_it_is_declared(
    options: dict[str, Any],
) -> None:
    jobs = Gantline("memory://")
    with pytest.raises(InvalidInput) as refused:

        @jobs.job("bad", **options)
        async def bad() -> None: ...

    assert refused.value.next_step


@pytest.mark.parametrize("options", OF_TYPES, ids=str)
def test_what_makes_no_sense_for_all_types_is_refused_with_the_defaults(
    options: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput) as refused:
        JobDefaults(**options)
    assert refused.value.next_step


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300])
@pytest.mark.parametrize("field", ["queue", "tenant"])
def test_a_name_that_is_none_is_refused(field: str, name: str) -> None:
    options: dict[str, Any] = {field: name}
    with pytest.raises(InvalidInput, match=f"default {field}") as refused:
        JobDefaults(**options)
    assert refused.value.next_step


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(attempts=0),
        lambda: Backoff(base=NAN),
        lambda: Backoff(cap_seconds=NAN),
        lambda: Backoff(jitter=NAN),
        lambda: Fixed(every=-SECOND),
        lambda: Linear(step=-SECOND),
    ],
)
def test_a_retry_strategy_that_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput):
        make()


# -- of jobs --------------------------------------------------------------------------------------


def declared(place: Gantline | JobGroup) -> tuple[JobType[..., Any], JobType[..., Any]]:
    @place.job("plain")
    async def plain() -> None: ...

    @place.job(
        "own",
        queue="mine",
        retry=Fixed(attempts=9, every=SECOND),
        timeout=2 * SECOND,
        classify=classify_nothing,
        max_crashes=7,
        max_snoozes=8,
        hold_key=DAY,
    )
    async def own() -> None: ...

    return plain, own


def classify_nothing(error: BaseException) -> None:
    return None


@pytest.mark.parametrize("by_group", [False, True])
def test_a_type_has_what_the_application_says_unless_it_says_otherwise(by_group: bool) -> None:
    defaults = JobDefaults(
        queue="ours",
        retry=Fixed(attempts=5, every=HOUR),
        timeout=HOUR,
        classify=by_paper,
        max_crashes=2,
        max_snoozes=0,
        hold_key=HOUR,
    )
    place = JobGroup() if by_group else Gantline("memory://", defaults=defaults)
    plain, own = declared(place)
    if isinstance(place, JobGroup):
        Gantline("memory://", defaults=JobDefaults(queue="others", max_crashes=6), include=[place])
        assert (plain.handler.queue, plain.handler.policy.max_crashes) == ("others", 6)
        Gantline("memory://", defaults=defaults, include=[place])
    policy = plain.handler.policy
    assert (plain.handler.queue, plain.handler.timeout) == ("ours", HOUR)
    assert (policy.retry, policy.classify) == (defaults.retry, by_paper)
    assert (policy.max_crashes, policy.max_snoozes, policy.hold_key) == (2, 0, HOUR)
    policy = own.handler.policy
    assert (own.handler.queue, own.handler.timeout) == ("mine", 2 * SECOND)
    assert (policy.retry.attempts, policy.classify) == (9, classify_nothing)
    assert (policy.max_crashes, policy.max_snoozes, policy.hold_key) == (7, 8, DAY)


def test_what_nobody_says_is_as_a_policy_has_it() -> None:
    plain, _ = declared(Gantline("memory://"))
    assert plain.handler.policy == Policy()
    assert plain.handler.queue == "default"


def test_a_group_has_a_queue_of_its_own() -> None:
    group = JobGroup(queue="g")
    plain, own = declared(group)
    jobs = Gantline("memory://", defaults=JobDefaults(queue="ours"), include=[group])
    assert (plain.handler.queue, own.handler.queue) == ("g", "mine")
    assert jobs.default_queues().keys() == {"g", "mine", "ours"}


async def test_tenant_limit_and_check_hold_for_what_is_submitted() -> None:
    def refuse(job_type: str, data: Any) -> str | None:
        return "it is negative" if data == -1 else None

    defaults = JobDefaults(tenant="acme", payload_limit=10, payload_check=refuse)
    jobs = Gantline("memory://", defaults=defaults)

    @jobs.job("any")
    async def take(value: Any) -> None: ...

    async with jobs:
        handle = await take.submit(1)
        assert (await handle.status()).job.tenant_id == "acme"
        for bad in ("x" * 20, -1):
            with pytest.raises(InvalidInput):
                await take.submit(bad)


# -- which errors are worth another attempt -------------------------------------------------------


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_classifier_says_what_an_error_counts_as() -> None:
    failure = classify(raised(NoPaper("page 7")), by_paper)
    assert isinstance(failure, Failure)
    assert (failure.error.code, failure.retryable) == ("NO_PAPER", False)
    assert "page 7" in failure.error.detail, "the trace of what was raised"
    assert "page 7" not in failure.error.message
    assert classify(raised(KeyError()), by_paper) == Snoozed(HOUR)
    other = classify(raised(IndexError()), by_paper)
    assert isinstance(other, Failure)
    assert (other.error.code, other.retryable) == ("NETWORK_ERROR", True)
    assert classify(raised(ValueError()), by_paper) == classify(raised(ValueError()))


def test_a_handler_s_own_signal_is_not_classified() -> None:
    def refuse(error: BaseException) -> BaseException:
        raise AssertionError

    assert classify(raised(Snooze(SECOND)), refuse) == Snoozed(SECOND)
    outcome = classify(raised(Retry(after=SECOND)), refuse)
    assert isinstance(outcome, Failure)
    assert outcome.retry_after == SECOND


def test_the_errors_of_a_group_are_classified_one_by_one() -> None:
    found = classify(raised(ExceptionGroup("two", [ValueError(), NoPaper()])), by_paper)
    assert isinstance(found, Failure)
    assert (found.error.code, found.retryable) == ("NO_PAPER", False)
    assert "NoPaper" in found.error.detail
    assert classify(raised(ExceptionGroup("one", [KeyError()])), by_paper) == Snoozed(HOUR)


def test_a_classifier_that_fails_leaves_it_to_the_rules(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: BaseException) -> BaseException:
        raise RuntimeError

    outcome = classify(raised(ConnectionError()), broken)
    assert isinstance(outcome, Failure)
    assert outcome.error.code == "NETWORK_ERROR"
    assert "using the default rules" in caplog.text


@asynccontextmanager
async def at_work(jobs: Gantline, **settings: Any) -> AsyncIterator[None]:
    async with jobs, jobs.running(WorkerSettings(drain=timedelta(0), **settings)):
        yield


@pytest.mark.parametrize("run_in", ["loop", "thread", "process"])
async def test_a_classifier_holds_wherever_a_handler_runs(run_in: str) -> None:
    jobs = Gantline("memory://", include=[group], defaults=JobDefaults(classify=by_paper))

    @jobs.job("loop")
    async def on_loop(page: int) -> None:
        raise NoPaper

    @jobs.job("thread")
    def in_thread(page: int) -> None:
        raise NoPaper

    by_place: dict[str, JobType[[int], Any]]
    by_place = {"loop": on_loop, "thread": in_thread, "process": prints}
    job = by_place[run_in]
    async with at_work(jobs):
        with pytest.raises(JobNotCompleted, match="There is no paper"):
            await (await job.submit(1)).result(timeout=30)
        if run_in == "process":
            ended = await (await job.submit(0)).wait(timeout=30)
            assert ended.last is not None
            assert ended.last.error is not None
            assert ended.last.error.code == "HANDLER_ERROR"


@pytest.mark.parametrize("whose", ["type", "application"])
def test_a_classifier_that_a_child_could_not_import_is_refused(whose: str) -> None:
    def local(error: BaseException) -> None: ...

    declare: dict[str, Callable[[], object]] = {
        "type": lambda: JobGroup().job("x", run_in="process", classify=local)(
            prints.handler.function
        ),
        "application": lambda: Gantline(
            "memory://", include=[group], defaults=JobDefaults(classify=local)
        ),
    }
    with pytest.raises(InvalidInput, match="could not import"):
        declare[whose]()


# -- of workers -----------------------------------------------------------------------------------


async def test_a_worker_without_queues_serves_those_of_the_declared_jobs() -> None:
    jobs = Gantline("memory://", worker=WorkerSettings(drain=timedelta(0)))
    declared(jobs)
    async with jobs, jobs.running() as worker:
        assert worker.slots == {"default": (10, 10), "mine": (10, 10)}
    async with jobs, jobs.running(WorkerSettings(queues={"mine": 2})) as worker:
        assert worker.slots == {"mine": (2, 2)}


@pytest.mark.parametrize(("slots", "queues"), [(3, 5), (1, 3), (7, 2), (4, 4)])
async def test_all_queues_together_have_no_more_runs_than_slots(slots: int, queues: int) -> None:
    jobs = Gantline("memory://")
    running, most, ended = 0, 0, 0

    for number in range(queues):

        @jobs.job(f"type-{number}", queue=f"queue-{number}")
        async def work(value: int) -> None:
            nonlocal running, most, ended
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running, ended = running - 1, ended + 1

    async with at_work(jobs, slots=slots, poll=timedelta(seconds=20)):
        handles = [h for one in jobs.job_types for h in await one.submit_many(range(40))]
        for handle in handles:
            await handle.wait(timeout=30)
    assert ended == 40 * queues
    assert most == slots


async def test_no_queue_waits_for_the_backlog_of_another_where_slots_are_few() -> None:
    jobs, order = Gantline("memory://"), list[str]()

    @jobs.job("many", queue="a")
    async def many(value: int) -> None:
        order.append("many")

    @jobs.job("few", queue="b")
    async def few(value: int) -> None:
        order.append("few")

    async with jobs:
        await many.submit_many(range(100))
        handles = await few.submit_many(range(3))
        async with jobs.running(WorkerSettings(slots=1, drain=timedelta(0))):
            for handle in handles:
                await handle.wait(timeout=30)
    assert [index for index, name in enumerate(order) if name == "few"][-1] < 20


async def test_what_is_submitted_to_any_queue_is_picked_up_at_once_where_slots_are_few() -> None:
    jobs = Gantline("memory://")
    for number in range(5):

        @jobs.job(f"type-{number}", queue=f"queue-{number}")
        async def work() -> None: ...

    async with at_work(jobs, slots=2, poll=timedelta(minutes=1)):
        for one in [*jobs.job_types, *reversed(jobs.job_types)]:
            await (await one.submit(None)).wait(timeout=5)


def test_a_claim_that_finds_no_slot_does_not_use_up_the_turn_of_a_queue() -> None:
    slots = Slots(WorkerSettings(queues={"a": 1, "b": 1, "c": 1}, slots=1))
    asked = []
    for _ in range(6):
        (request,) = slots.requests(("t",), frozenset())
        asked.append(request.queue)
        slots.take(request.queue, "t")
        assert slots.requests(("t",), frozenset()) == []
        slots.give_back(request.queue, "t")
    assert asked == ["a", "b", "c", "a", "b", "c"]


def test_a_claim_asks_for_no_more_than_a_batch_and_never_for_more_than_is_free() -> None:
    def asked(**settings: Any) -> dict[str, int]:
        slots = Slots(WorkerSettings(queues={"a": 10, "b": 4}, **settings))
        return {one.queue: one.limit for one in slots.requests(("t",), frozenset())}

    assert asked() == {"a": 5, "b": 2}
    assert asked(claim_batch=3) == {"a": 3, "b": 2}
    assert asked(claim_batch=1) == {"a": 1, "b": 1}
    assert asked(claim_batch=100) == {"a": 5, "b": 2}
    assert sum(asked(slots=3).values()) == 3
    assert sum(asked(slots=6).values()) == 6


def test_leases_are_renewed_as_often_as_is_said() -> None:
    def beat(lease: timedelta, every: timedelta | None = None) -> float:
        nothing: Any = lambda *anything: None  # noqa: E731
        keeper = LeaseKeeper(
            nothing,
            "session",
            lease,
            every=every,
            on_lost=nothing,
            on_cut_off=nothing,
            on_confirmed=nothing,
            on_cancel=nothing,
        )
        return keeper.beat_seconds

    assert (beat(4 * SECOND), beat(HOUR)) == (1, 5)
    assert (beat(4 * SECOND, 2 * SECOND), beat(HOUR, 20 * SECOND)) == (2, 20)


async def test_a_worker_renews_by_its_settings() -> None:
    renewed = 0
    jobs, may_end = Gantline("memory://"), asyncio.Event()
    renew = jobs.store.renew

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal renewed
        renewed += 1
        if renewed == 5:
            jobs_loop.call_soon_threadsafe(may_end.set)
        return await renew(*arguments, **options)

    jobs_loop = asyncio.get_running_loop()
    jobs.store.renew = counted  # type: ignore[method-assign]

    @jobs.job("long")
    async def long() -> None:
        await may_end.wait()

    async with at_work(jobs, lease=HOUR, renew_every=timedelta(milliseconds=20)):
        await (await long.submit(None)).wait(timeout=20)
    assert renewed >= 5


# -- of the store ---------------------------------------------------------------------------------


def test_what_is_not_said_of_retention_is_as_the_store_keeps_it() -> None:
    mine = Retention(completed=timedelta(0), failed=DAY)
    for known in (ON_DISK, IN_MEMORY):
        kept = mine.over(known)
        assert (kept.completed, kept.failed) == (timedelta(0), DAY)
        assert (kept.poisoned, kept.cancelled) == (known.poisoned, known.cancelled)
    assert Retention().over(ON_DISK) == ON_DISK


async def test_the_maintenance_has_what_the_application_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, made = dict[str, Any](), asyncio.Event()

    def pruner(*arguments: Any, **options: Any) -> Any:
        seen.update(options)
        made.set()
        return Pruner(*arguments, **options)

    def maintenance(*arguments: Any, **options: Any) -> Any:
        seen.update(options)
        return Maintenance(*arguments, **options)

    monkeypatch.setattr("gantline.worker.upkeep.Pruner", pruner)
    monkeypatch.setattr("gantline.worker.upkeep.Maintenance", maintenance)
    storage = StorageSettings(retention=Retention(completed=HOUR), no_handler_grace=DAY)
    jobs = Gantline("memory://", storage=storage)
    async with at_work(jobs), asyncio.timeout(10):
        await made.wait()
    assert seen["no_handler_grace"] == DAY
    assert seen["retention"] == Retention(completed=HOUR).over(ON_DISK)
    assert jobs.watching.retention == seen["retention"]


async def test_only_the_statuses_that_are_said_are_pruned() -> None:
    jobs = Gantline("memory://")

    @jobs.job("ends")
    async def ends(how: str) -> None:
        if how != "Completed":
            raise Permanent("X", "x")

    async with at_work(jobs, maintain_every=None):
        handles = [await ends.submit(how) for how in ("Completed", "Failed")]
        for handle in handles:
            await handle.wait(timeout=10)
        await asyncio.sleep(0.01)
        retention = Retention(failed=timedelta(0))
        pruned = await Pruner(jobs.store, jobs.switches, retention=retention).run_once()
        assert pruned.jobs == 1
        assert (await handles[0].status()).status is JobStatus.COMPLETED


async def test_hooks_are_entered_around_each_run() -> None:
    seen = []

    @asynccontextmanager
    async def hook(ctx: Context) -> AsyncIterator[None]:
        seen.append(ctx.job.job_type)
        yield

    jobs = Gantline("memory://", defaults=JobDefaults(hooks=[hook]))

    @jobs.job("hooked")
    async def hooked() -> None: ...

    async with at_work(jobs):
        await (await hooked.submit(None)).wait(timeout=10)
    assert seen == ["hooked"]
