"""A wrong declaration is refused where it is written: its place, the wrong value, the next step."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

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
    JobEvent,
    JobGroup,
    JobStatus,
    RetryTable,
    StorageSettings,
    WorkerSettings,
    provide,
)
from gantline.api import ApiSettings
from gantline.contract.snapshot import Run
from gantline.worker.executor import Executor

NAN = float("nan")
SECOND = timedelta(seconds=1)


class Order(msgspec.Struct):
    order_id: str


async def ship(order: Order) -> None: ...


def rows() -> Iterator[int]:
    yield 1


async def later_rows() -> AsyncIterator[int]:
    yield 1


def growing(order: Order, *, seen: list[str] = []) -> None: ...  # noqa: B006  # wrong on purpose


class Nested(msgspec.Struct):
    missing: "Missing"  # type: ignore[name-defined]  # noqa: F821  # wrong on purpose


def forward(order: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821  # likewise


def nested_forward(order: Nested) -> None: ...


def forward_result(order: Order) -> Nested: ...  # type: ignore[empty-body]


def positional_provided(order: Order, db: int = provide(rows)) -> None: ...


def many(*numbers: int) -> None: ...


def many_by_name(order: Order, **numbers: int) -> None: ...


def untyped_context(order, ctx): ...  # type: ignore[no-untyped-def]  # wrong on purpose


async def hears(event: JobEvent) -> None: ...


async def hears_nothing() -> None: ...


# -- what is refused ------------------------------------------------------------------------------

JOBS: list[tuple[dict[str, Any], str]] = [
    ({"retry": "x"}, r"retry is 'x'\. It must be RetryStrategy"),
    ({"retry": Backoff}, r"retry is <class .*Backoff'>\. It must be RetryStrategy"),
    ({"retry": 0}, r"attempts is 0\. It must be a whole number from 1 to"),
    ({"timeout": "long"}, r"timeout is 'long'\. It must be a timedelta or seconds"),
    ({"timeout": NAN}, r"timeout is nan\. It must be a timedelta or seconds"),
    ({"timeout": -1}, r"timeout is -1 s\. It must be from 0 s"),
    ({"timeout": 0}, r"timeout of 'ship' is 0 s\. It must be from 0\.001 s"),
    ({"hold_key": -SECOND}, r"hold_key is -1 s\. It must be from"),
    ({"queue": 5}, r"queue is 5\. It must be text of size 1 to 256"),
    ({"queue": ""}, r"queue is ''\. It must be text of size 1 to 256"),
    ({"priority": 9}, r"priority is 9\. It must be a whole number from 0 to 3"),
    ({"classify": "x"}, r"classify is 'x'\. It must be a function"),
    ({"schedule": "x"}, r"schedule is 'x'\. It must be a function"),
    ({"upgrade": 1}, r"upgrade is 1\. It must be a function"),
    ({"version": 0}, r"version is 0\. It must be a whole number from 1 to"),
    ({"run_in": "procss"}, r"run_in is 'procss'\. It must be .*'process'"),
    ({"aliases": "old"}, r"aliases is 'old'\. It must be a list, each text"),
    ({"events": ["done"]}, r"events is \['done'\]\. It must be .*'started'"),
    ({"concurrency": 0}, r"concurrency is 0\. .* from 1 to"),
    ({"max_depth": -1}, r"max_depth is -1\. .* from 0 to"),
    ({"subject": 5}, r"subject is 5\. It must be text or a function"),
    ({"subject": "{orderid}"}, r"names orderid, which the payload has not\. It has order_id"),
    ({"idempotency_key": "{orderid}"}, r"names orderid, .* It has order_id"),
    ({"max_attempts": 3}, r"A job has no option 'max_attempts'\. Is retry=3 meant\?"),
    ({"retrys": 3}, r"A job has no option 'retrys'\. Is 'retry' meant\?"),
    ({"colour": "red"}, r"A job has no option 'colour'\. It has name, subject, "),
]
HANDLERS: list[tuple[Any, str]] = [
    (rows, r"rows cannot be a handler: it yields\. Write a `def`"),
    (later_rows, r"later_rows cannot be a handler: it yields\. Write a `def`"),
    (forward, r"The types of forward cannot be read: name 'Missing' is not defined\. Define them"),
    (
        nested_forward,
        r"nested_forward cannot be read: .*'Missing' is not defined\. Define them",
    ),
    (
        forward_result,
        r"forward_result cannot be read: .*'Missing' is not defined\. Define them",
    ),
    (positional_provided, r"db is provided, and positional\. Make it keyword-only: `\*, db = …`"),
    (many, r"many cannot be a handler: a payload has no names for `\*numbers: int`\. Name each"),
    (many_by_name, r"a payload has no names for `\*\*numbers: int`\. Name each, or take a list"),
    (untyped_context, r"ctx has no type\. If it is the Context, write `ctx: Context`"),
    (growing, r"its runs would share seen: .* = \[\]\. Use None"),
    (5, r"5 cannot be a handler: it is not a function\. Write a `def`"),
]
CONSUMERS: list[tuple[dict[str, Any], Any, str]] = [
    ({}, rows, r"rows cannot be called with an event: it yields\. Write"),
    ({}, hears_nothing, r"hears_nothing cannot be called with an event: too many"),
    ({}, 5, r"5 cannot be called with an event: it is not a function"),
    ({"nam": "x"}, hears, r"@jobs\.on has no option 'nam'\. Is 'name' meant\?"),
    ({"name": 5}, hears, r"name is 5\. It must be text"),
    ({"from_start": "yes"}, hears, r"from_start is 'yes'\. It must be True or False"),
    ({"job_type": 5}, hears, r"job_type is 5\. It must be text or JobType"),
    ({"job_type": [5]}, hears, r"job_type is 5\. It must be text or JobType"),
]
SCHEDULES: list[tuple[Any, dict[str, Any], str]] = [
    (NAN, {}, r"interval is nan\. It must be a timedelta or seconds"),
    (-5, {}, r"interval is -5 s\. It must be from"),
    ("5 s", {}, r"interval is '5 s'\. It must be a timedelta or seconds"),
    (5, {"jiter": 1}, r"A schedule has no option 'jiter'\. Is 'jitter' meant\?"),
    (5, {"overlap": "never"}, r"overlap is 'never'\. It must be .*'skip'"),
]


async def _refuse(ctx: Context) -> None: ...


async def _yielding(ctx: Context) -> AsyncIterator[None]:
    yield


def any_of(kind: Any, *values: Any, **options: Any) -> Callable[[], Any]:
    return lambda: kind(*values, **options)


GROUPS: list[tuple[Callable[[], Any], str]] = [
    (any_of(WorkerSettings, slots="x"), r"slots is 'x'\. It must be a whole number .* or None"),
    (any_of(WorkerSettings, slotz=1), r"WorkerSettings has no option 'slotz'\. Is 'slots' meant\?"),
    (
        any_of(WorkerSettings, 5),
        r"WorkerSettings cannot be made: Extra .*\. Give it queues",
    ),
    (any_of(Fixed), r"Fixed cannot be made: Missing required argument 'every'\. Give it attempts"),
    (any_of(JobDefaults, max_attempts=3), r"JobDefaults has no option .* Is retry=3 meant\?"),
    (any_of(JobDefaults, retry=0), r"attempts is 0\. It must be a whole number"),
    (
        any_of(ApiSettings, bodyseconds=1),
        r"ApiSettings has .* Is 'body_seconds' meant\?",
    ),
    (any_of(ApiSettings, body_seconds="x"), r"body_seconds is 'x'\. It must be a number\."),
    (any_of(JobDefaults, queue=5), r"queue is 5\. It must be text"),
    (any_of(JobDefaults, classify="x"), r"classify is 'x'\. It must be a function"),
    (any_of(JobDefaults, retry="x"), r"retry is 'x'\. It must be RetryStrategy"),
    (any_of(JobDefaults, timeout=NAN), r"timeout is nan\. It must be a timedelta or seconds\."),
    (any_of(JobDefaults, hooks=5), r"hooks is 5\. It must be a list, each a function"),
    (any_of(JobDefaults, hooks=[5]), r"hooks is \[5\]\. It must be a list, each a function"),
    (any_of(JobDefaults, hooks=[_refuse]), r"_refuse.* gives no context manager\. Write"),
    (any_of(JobDefaults, hooks=[_yielding]), r"_yielding.* gives no context manager\. Write"),
    (any_of(WorkerSettings, lease=NAN), r"lease is nan\. It must be a timedelta or seconds\."),
    (
        any_of(WorkerSettings, queues={"a": 0}),
        r"queues is \{'a': 0\}\. .* a dict, from text .* from 1 to",
    ),
    (any_of(StorageSettings, durability="x"), r"durability is 'x'\. It must be .*'power_loss'"),
    (any_of(StorageSettings, retention="x"), r"retention is 'x'\. It must be Retention"),
    (any_of(AuditSettings, sink=5), r"sink is 5\. It must be AuditSink"),
    (any_of(Backoff, attempts="5"), r"attempts is '5'\. It must be a whole number"),
    (any_of(Backoff, base=NAN), r"base is nan\. It must be a number > 0"),
    (any_of(Fixed, every=NAN), r"every is nan\. It must be a timedelta or seconds\."),
    (any_of(Fixed, every=-5), r"every is -5 s\. It must be from"),
    (any_of(RetryTable, waits=[1, -1]), r"waits is -1 s\. It must be from"),
    (any_of(RetryTable, waits=[]), r"waits is \[\]\. .* of size 1 to 1000"),
    (any_of(Gantline, 5), r"store is 5\. It must be JobStore"),
    (any_of(Gantline, "memory://", worker=True), r"worker is True\. It must be WorkerSettings"),
    (any_of(Gantline, "memory://", webhooks=True), r"webhooks is True\. It must be Webhook"),
    (any_of(Gantline, "memory://", include=[5]), r"include is 5\. It must be JobGroup"),
    (any_of(Gantline, "memory://", wroker=None), r"no option 'wroker'\. Is 'worker' meant\?"),
    (any_of(JobGroup, queue=5), r"queue is 5\. It must be text"),
    (any_of(JobGroup, name="x"), r"JobGroup has no option 'name'\. It has queue"),
]
SUBMITS: list[tuple[dict[str, Any], str]] = [
    ({"delay": NAN}, r"delay is nan\. It must be a timedelta or seconds"),
    ({"delay": -5}, r"delay is -5 s\. It must be from"),
    ({"at": 5}, r"at is 5\. It must be datetime"),
    ({"priority": "high"}, r"priority is 'high'\. It must be a whole number"),
    ({"tenant": 5}, r"tenant is 5\. It must be text"),
    ({"dealy": 5}, r"A submit has no option 'dealy'\. Is 'delay' meant\?"),
]


def below(lines: int) -> str:
    """The place so many lines below the caller, as the text begins that refuses it."""
    return f"{__file__}:{inspect.stack()[1].lineno + lines}: "


@pytest.mark.parametrize(("options", "why"), JOBS)
@pytest.mark.parametrize("make", [lambda: Gantline("memory://"), JobGroup])
def test_a_wrong_option_of_a_job_is_refused_with_its_place(
    make: Callable[[], Any], options: dict[str, Any], why: str
) -> None:
    jobs = make()
    place = below(2)
    with pytest.raises(InvalidInput, match=why) as refused:
        jobs.job("ship", **options)(ship)
    assert str(refused.value).startswith(place)
    assert refused.value.cause.startswith(place)
    assert not jobs.job_types


@pytest.mark.parametrize(("function", "why"), HANDLERS)
@pytest.mark.parametrize("is_bare", [False, True])
def test_what_is_no_handler_is_refused_with_its_place(
    function: Any, why: str, is_bare: bool
) -> None:
    jobs = Gantline("memory://")
    decorator = jobs.job if is_bare else jobs.job("named")
    place = below(2)
    with pytest.raises(InvalidInput, match=why) as refused:
        decorator(function)
    assert str(refused.value).startswith(place)


def test_the_place_is_that_of_the_decorator() -> None:
    jobs = Gantline("memory://")
    place = below(3)
    with pytest.raises(InvalidInput) as refused:

        @jobs.job("ship", timeout=0)
        async def wrong() -> None: ...

    assert str(refused.value).startswith(place)


@pytest.mark.parametrize(("options", "function", "why"), CONSUMERS)
def test_what_is_no_consumer_is_refused_with_its_place(
    options: dict[str, Any], function: Any, why: str
) -> None:
    jobs = Gantline("memory://")
    place = below(2)
    with pytest.raises(InvalidInput, match=why) as refused:
        jobs.on("job.completed", **options)(function)
    assert str(refused.value).startswith(place)


@pytest.mark.parametrize(("interval", "options", "why"), SCHEDULES)
def test_a_wrong_schedule_is_refused_with_its_place(
    interval: Any, options: dict[str, Any], why: str
) -> None:
    jobs = Gantline("memory://")
    job = jobs.job(hears_nothing)
    for put in (
        lambda: jobs.every(interval, **options)(job),
        lambda: job.every(interval, **options),
    ):
        with pytest.raises(InvalidInput, match=why) as refused:
            put()
        assert refused.value.line.startswith(__file__)
    assert not job.schedules


@pytest.mark.parametrize(("make", "why"), GROUPS)
def test_a_wrong_setting_is_refused_where_it_is_made(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as refused:
        make()
    assert refused.value.next_step
    assert refused.value.line.startswith(__file__)


@pytest.mark.parametrize(("options", "why"), SUBMITS)
async def test_a_wrong_option_of_a_submit_is_refused(options: dict[str, Any], why: str) -> None:
    jobs = Gantline("memory://")
    job = jobs.job(ship)
    with pytest.raises(InvalidInput, match=why):
        await job.submit(Order("o-1"), **options)


def test_a_text_that_is_no_id_is_refused() -> None:
    job = Gantline("memory://").job(ship)
    with pytest.raises(InvalidInput, match=r"job_id is 'o-1'\. It must be UUID"):
        job.handle("o-1")
    job_id = uuid4()
    assert job.handle(str(job_id)).job_id == job_id


# -- what is clear --------------------------------------------------------------------------------


def test_a_number_is_seconds_wherever_a_timedelta_is_taken() -> None:
    jobs = Gantline("memory://", defaults=JobDefaults(timeout=60, hold_key=0.5))  # type: ignore[arg-type]
    plain, own = jobs.job(hears_nothing), jobs.job("own", timeout=1.5, hold_key=2)(ship)
    assert (plain.handler.timeout, plain.handler.policy.hold_key) == (60 * SECOND, SECOND / 2)
    assert (own.handler.timeout, own.handler.policy.hold_key) == (1.5 * SECOND, 2 * SECOND)
    plain.every(5, jitter=2, grace=3)
    (schedule,) = jobs.declared_schedules
    assert (schedule.jitter_seconds, schedule.grace_seconds) == (2, 3)
    assert WorkerSettings(lease=30, poll=0.5).poll == SECOND / 2  # type: ignore[arg-type]
    assert Fixed(every=5) == Fixed(every=5 * SECOND)  # type: ignore[arg-type]
    assert RetryTable(waits=[1, 2]) == RetryTable(waits=[SECOND, 2 * SECOND])  # type: ignore[list-item]
    assert own.prepare(Order("o-1"), delay=5).delay == 5 * SECOND


def test_one_time_of_retention_is_for_every_status() -> None:
    retention = StorageSettings(retention=SECOND).retention  # type: ignore[arg-type]
    assert {retention.of(status) for status in JobStatus if status.is_terminal} == {SECOND}


def test_a_number_of_retries_is_so_many_attempts_with_the_default_waits() -> None:
    jobs = Gantline("memory://", defaults=JobDefaults(retry=7))  # type: ignore[arg-type]
    plain, own = jobs.job(hears_nothing), jobs.job("own", retry=5)(ship)
    assert plain.handler.policy.retry == Backoff(attempts=7)
    assert own.handler.policy.retry == Backoff(attempts=5)


async def test_a_job_without_a_name_has_that_of_its_function() -> None:
    jobs = Gantline("memory://")

    @jobs.job
    async def bare(order: Order, ctx: Context) -> str:
        return order.order_id

    @jobs.job(queue="slow")
    def in_a_thread() -> int:
        return 1

    assert [one.name for one in jobs.job_types] == ["bare", "in_a_thread"]
    async with jobs, jobs.running():
        assert await (await bare.submit(Order("o-1"))).result(timeout=10) == "o-1"
        assert await (await in_a_thread.submit(None)).result(timeout=10) == 1


# -- what breaks nevertheless ---------------------------------------------------------------------


async def test_a_start_that_raises_fails_its_job_and_no_neighbour(
    monkeypatch: pytest.MonkeyPatch, store_url: str
) -> None:
    jobs, bad = Gantline(store_url), set[Any]()
    resolve = Executor.resolve

    def raising(self: Executor, run: Run, now: datetime) -> Any:
        if run.job.job_id in bad:
            raise RuntimeError("no start")
        return resolve(self, run, now)

    monkeypatch.setattr(Executor, "resolve", raising)

    @jobs.job
    async def double(number: int) -> int:
        return 2 * number

    async with jobs:
        handles = await double.submit_many(range(8))
        bad |= {handles[0].job_id, handles[5].job_id}
        async with jobs.running(WorkerSettings(queues={"default": 8}, claim_batch=8)):
            for number, handle in enumerate(handles):
                ended = await handle.wait(timeout=10)
                is_bad = handle.job_id in bad
                assert ended.status is (JobStatus.FAILED if is_bad else JobStatus.COMPLETED), number
            again = await double.submit(1)
            assert await again.result(timeout=10) == 2


async def test_a_codec_that_breaks_fails_its_job_and_no_neighbour() -> None:
    jobs = Gantline("memory://")

    class Broken:
        fields = None

        def __init__(self, codec: Any) -> None:
            self.encode, self._decode = codec.encode, codec.decode

        def decode(self, body: bytes) -> Any:
            if body == b"3":
                raise RuntimeError("a codec of the user's own")
            return self._decode(body)

    @jobs.job
    async def double(number: int) -> int:
        return 2 * number

    codec: Any = Broken(double.handler.codec)
    handler = msgspec.structs.replace(double.handler, codec=codec)
    jobs.registry.add(handler)
    async with jobs:
        handles = await double.submit_many(range(6))
        async with jobs.running():
            ends = [(await handle.wait(timeout=10)).status for handle in handles]
    expected = [JobStatus.COMPLETED] * 6
    expected[3] = JobStatus.FAILED
    assert ends == expected


def _break(ctx: Context) -> None:
    if ctx.job.subject_id == "bad":
        raise RuntimeError("broken")


@asynccontextmanager
async def breaking_hook(ctx: Context) -> AsyncIterator[None]:
    _break(ctx)
    yield


@pytest.mark.parametrize("hooks", [[breaking_hook], []], ids=["hook", "provider"])
async def test_a_hook_or_a_provider_that_breaks_harms_no_neighbour(hooks: Any) -> None:
    jobs = Gantline("memory://", defaults=JobDefaults(retry=Backoff(attempts=1), hooks=hooks))

    @jobs.job
    async def double(number: int, *, given: None = provide(_break)) -> int:
        return 2 * number

    async with jobs:
        bad = await double.submit(1, subject="bad")
        good = await double.submit_many(range(4))
        async with jobs.running():
            assert [await one.result(timeout=10) for one in good] == [0, 2, 4, 6]
            assert (await bad.wait(timeout=10)).status.is_terminal


async def test_the_largest_counts_that_are_accepted_stop_no_worker(store_url: str) -> None:
    """On PostgreSQL nothing was claimed with a count beyond 32 bits, while the worker was ready."""
    most = 1_000_000
    with pytest.raises(InvalidInput, match="concurrency is"):
        Gantline("memory://").job("larger", concurrency=most + 1)
    jobs = Gantline(store_url)

    @jobs.job("large", concurrency=most, max_depth=2**31 - 1)
    async def large(value: int) -> int:
        return value

    settings = WorkerSettings(queues={"default": most}, slots=most, claim_batch=most)
    async with jobs, jobs.running(settings):
        assert await (await large.submit(3)).result(timeout=20) == 3
