"""The parameters of a function are the arguments of its jobs: sent as the function is called."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import msgspec
import pytest

from gantline import Context, Gantline, InvalidInput, JobGroup, JobType, provide
from gantline.contract.errors import InvalidPayload, ResultNotStorable
from gantline.testing import JobsTest
from tests import sending_jobs
from tests.sending_jobs import Address, Item

SECOND = timedelta(seconds=1)
LABELLED = (Item("pen", Decimal("1.50")), Address(city="Bern"))

CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = [
    (sending_jobs.add, (1,), {}, 3),
    (sending_jobs.add, (1,), {"b": 5}, 6),
    (sending_jobs.add, (), {"b": 5, "a": 1}, 6),
    (sending_jobs.by_position, (1, 2), {}, [1, 2, 3]),
    (sending_jobs.by_position, (1,), {"b": 2, "c": 4}, [1, 2, 4]),
    (sending_jobs.label, LABELLED, {"count": 2}, "2 Item 1.50 Address Bern"),
    (sending_jobs.loose, (1,), {"b": [2]}, [1, [2]]),
    (sending_jobs.optional, (1,), {}, [1, None]),
    (sending_jobs.only_by_name, (), {"a": 1}, 1),
    (sending_jobs.later, (1, 2), {}, 3),
]
WITH_CONTEXT = [
    (sending_jobs.with_context_first, (1,), {"b": 5}, 7),
    (sending_jobs.with_context_last, (1, 5), {}, 7),
    (sending_jobs.with_context_or_not, (1,), {"b": 5}, 7),
]


def a_name(function: Any) -> Any:
    return getattr(function, "__name__", None)


def payload_of(job: JobType[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What would be stored."""
    return msgspec.json.decode(job.prepare(job.payload(*args, **kwargs)).job.payload)


def adding() -> tuple[Gantline, JobType[..., int]]:
    jobs = Gantline("memory://")
    return jobs, jobs.job(sending_jobs.add)


# -- running --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "args", "kwargs", "result"), CALLS, ids=a_name)
@pytest.mark.parametrize("run_in", [None, "process"])
async def test_a_job_calls_its_function_with_what_was_sent(
    function: Any, args: Any, kwargs: Any, result: Any, run_in: Any
) -> None:
    jobs = Gantline("memory://")
    job: JobType[..., Any] = jobs.job(run_in=run_in)(function)
    async with jobs, jobs.running():
        assert await (await job.send(*args, **kwargs)).result(timeout=20) == result


@pytest.mark.parametrize(("function", "args", "kwargs", "result"), WITH_CONTEXT, ids=a_name)
async def test_the_context_is_found_by_its_type(
    function: Any, args: Any, kwargs: Any, result: Any
) -> None:
    jobs = Gantline("memory://")
    job: JobType[..., Any] = jobs.job(function)
    async with jobs, jobs.running():
        assert await (await job.send(*args, **kwargs)).result(timeout=10) == result


async def test_several_arguments_are_kept_by_every_store(store_url: str) -> None:
    jobs = Gantline(store_url)
    job = jobs.job(sending_jobs.label)
    async with jobs, jobs.running():
        sent = await job.options(subject="s", priority=1).send(*LABELLED)
        assert await sent.result(timeout=20) == "1 Item 1.50 Address Bern"


async def test_dependencies_are_no_arguments() -> None:
    jobs = Gantline("memory://")

    @jobs.job
    async def scaled(a: int, *, b: int = 2, factor: int = provide(lambda: 10)) -> int:
        return (a + b) * factor

    assert payload_of(scaled, 1) == {"a": 1, "b": 2}
    async with jobs, jobs.running():
        assert await (await scaled.send(1, b=3)).result(timeout=10) == 40
    with pytest.raises(InvalidInput, match="unexpected keyword argument 'factor'"):
        await scaled.send(1, factor=1)


# -- the payload ----------------------------------------------------------------------------------


def test_one_argument_is_the_payload_and_several_are_an_object_of_their_names() -> None:
    jobs = Gantline("memory://")

    @jobs.job
    def nothing() -> None: ...

    @jobs.job
    def one(number: int = 7) -> None: ...

    assert payload_of(nothing) is None
    assert payload_of(one) == 7
    assert payload_of(one, number=3) == 3
    assert payload_of(jobs.job(sending_jobs.add), 1) == {"a": 1, "b": 2}
    assert payload_of(jobs.job(sending_jobs.label), *LABELLED) == {
        "item": {"name": "pen", "price": "1.50"},
        "to": {"city": "Bern", "lines": []},
        "count": 1,
    }


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"c": 2}, "unexpected keyword argument 'c'"),
    ],
)
async def test_a_wrong_call_names_the_signature(args: Any, kwargs: Any, why: str) -> None:
    _, add = adding()
    match = rf"add cannot be called with these arguments: .*{why}.* It takes \(a: int, b: int = 2\)"
    for send in (add.send, add.options(delay=1).send):
        with pytest.raises(InvalidInput, match=match):
            await send(*args, **kwargs)
    for refused in (add.send_sync, add.payload):
        with pytest.raises(InvalidInput, match=match):
            refused(*args, **kwargs)


def test_an_argument_of_another_type_is_refused_with_its_name() -> None:
    jobs, add = adding()
    label = jobs.job(sending_jobs.label)
    wrong: Any = "one"
    with pytest.raises(InvalidPayload, match=r"Expected `int`, got `str` - at `\$\.a`"):
        add.send_sync(wrong)
    with pytest.raises(InvalidPayload, match=r">= 1 - at `\$\.count`"):
        label.send_sync(*LABELLED, count=0)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"b": 1}, "missing a required argument: 'a'"),
        ({"a": 1, "c": 1}, "unexpected keyword argument 'c'"),
        ({"a": "x"}, r"Expected `int`, got `str` - at `\$\.a`"),
        ({1: 1}, "keywords must be strings"),
        (1, "Expected `object`, got `int`"),
        (None, "Expected `object`, got `null`"),
    ],
)
async def test_a_ready_payload_of_several_arguments_is_checked(payload: Any, why: str) -> None:
    _, add = adding()
    with pytest.raises(InvalidInput, match=why):
        await add.submit(payload)


def test_json_of_several_arguments_may_leave_out_defaults_and_has_no_other_names() -> None:
    _, add = adding()
    codec = add.handler.codec
    assert add.prepare(codec.decode(b'{"a": 1}')).job.data() == {"a": 1, "b": 2}
    with pytest.raises(InvalidPayload, match="unknown field `c`"):
        codec.decode(b'{"a": 1, "c": 1}')
    schema = codec.schema()["$defs"]["add"]
    assert schema["required"] == ["a"]
    assert schema["properties"] == {
        "a": {"type": "integer"},
        "b": {"type": "integer", "default": 2},
    }


def test_names_are_enough_for_what_the_function_takes_by_position() -> None:
    job = Gantline("memory://").job(sending_jobs.by_position)
    assert job.prepare({"a": 1, "b": 2}).job.data() == {"a": 1, "b": 2, "c": 3}


def test_templates_and_functions_see_the_arguments() -> None:
    jobs = Gantline("memory://")
    key: Callable[[Any], str] = lambda given: f"key-{given.b}"  # noqa: E731  # typed
    add = jobs.job(subject="{a}-{b}", idempotency_key=key)(sending_jobs.add)
    for payload in ({"a": 1}, add.payload(1)):
        job = add.prepare(payload).job
        assert (job.subject_id, job.idempotency_key) == ("1-2", "key-2")
    with pytest.raises(InvalidInput, match=r"names c, which the payload has not\. It has a, b"):
        jobs.job("other", subject="{c}")(sending_jobs.add)


def test_a_schedule_takes_the_arguments_by_name() -> None:
    jobs, add = adding()
    add.every(60, payload={"a": 1})
    add.every(60, name="other", payload=add.payload(1, 3))
    first, second = jobs.declared_schedules
    assert msgspec.json.decode(first.payload) == {"a": 1, "b": 2}
    assert msgspec.json.decode(second.payload) == {"a": 1, "b": 3}
    with pytest.raises(InvalidInput, match="missing a required argument"):
        add.every(60, name="third", payload={})


async def test_an_older_payload_is_upgraded_to_the_arguments() -> None:
    def upgrade(old: Any, version: int) -> Any:
        return {"a": old}

    jobs = Gantline("memory://")

    @jobs.job("add")
    async def first(number: int) -> None: ...

    async with jobs:
        sent = await first.send(5)
        newer = Gantline(jobs.store)
        newer.job("add", version=2, upgrade=upgrade)(sending_jobs.add)
        async with newer.running():
            assert await newer.job_types[0].handle(sent.job_id).result(timeout=10) == 7


def test_arguments_that_cannot_be_told_apart_are_refused_by_name() -> None:
    class Other(Address):
        pass

    def either(to: Address | Other, count: int) -> None: ...

    with pytest.raises(InvalidInput, match=r"either cannot be a payload: .* more than one custom"):
        Gantline("memory://").job(either)


# -- options --------------------------------------------------------------------------------------


async def test_options_are_those_of_submit_and_checked_where_they_are_given() -> None:
    jobs, add = adding()
    wrong: Any = {"dealy": 5}
    with pytest.raises(InvalidInput, match=r"A submit has no option 'dealy'\. Is 'delay' meant"):
        add.options(**wrong)
    wrong = {"priority": "high"}
    with pytest.raises(InvalidInput, match="priority is 'high'"):
        add.options(**wrong)
    async with JobsTest(jobs) as kit:
        sender = add.options(delay=60, tenant="t", priority=1)
        await sender.send(1)
        await sender.send(2, b=3)
        first, second = (one.status.job for one in (await kit.submitted(add)).all)
        assert (first.data(), second.data()) == ({"a": 1, "b": 2}, {"a": 2, "b": 3})
        assert {(one.tenant_id, one.priority) for one in (first, second)} == {("t", 1)}


async def test_a_group_may_choose_options_before_it_has_an_application() -> None:
    group = JobGroup()
    urgent = group.job(sending_jobs.add).options(priority=0)
    jobs = Gantline("memory://", include=[group])
    async with jobs, jobs.running():
        assert await (await urgent.send(1)).result(timeout=10) == 3


def test_send_sync_needs_no_event_loop() -> None:
    jobs, add = adding()
    sent = add.options(subject="s").send_sync(1)
    assert sent.status().job.data() == {"a": 1, "b": 2}
    assert add.send_sync(1, 3).status().job.data() == {"a": 1, "b": 3}
    jobs.run_sync(jobs.close)


# -- no payload -----------------------------------------------------------------------------------


async def test_what_takes_nothing_is_submitted_with_nothing() -> None:
    jobs, ran = Gantline("memory://"), list[str]()

    @jobs.job
    def last() -> None:
        ran.append("last")

    @jobs.job
    async def sweep(ctx: Context) -> None:
        ran.append("sweep")
        ctx.follow_up(last)

    async with JobsTest(jobs) as kit:
        await sweep.submit()
        await sweep.submit(None)
        await sweep.send()
        await kit.drain()
    assert (ran.count("sweep"), ran.count("last")) == (3, 3)
    with pytest.raises(InvalidInput):
        await sweep.submit({"a": 1})


def test_what_takes_nothing_is_submitted_with_nothing_without_a_loop() -> None:
    jobs = Gantline("memory://")

    @jobs.job
    def sweep() -> None: ...

    assert sweep.submit_sync().status().job.data() is None
    jobs.run_sync(jobs.close)


async def test_a_follow_up_takes_the_arguments_as_a_payload() -> None:
    jobs, add = adding()

    @jobs.job
    async def begin(ctx: Context) -> None:
        ctx.follow_up(add, {"a": 1})
        ctx.follow_up(add, add.payload(1, b=3))

    async with JobsTest(jobs) as kit:
        await begin.send()
        await kit.drain()
        assert [one.b for one in (await kit.submitted(add)).payloads] == [2, 3]


# -- what JSON and keys cannot be -----------------------------------------------------------------


@pytest.mark.parametrize("option", ["subject", "idempotency_key"])
def test_a_key_that_is_no_text_is_refused_by_the_name_of_its_function(option: str) -> None:
    jobs = Gantline("memory://")

    def number_of(payload: int) -> Any:
        return payload

    options: Any = {option: number_of}
    job = jobs.job(**options)(sending_jobs.only_by_name)
    with pytest.raises(InvalidInput, match=r"number_of returned int, .*\. Return text"):
        job.send_sync(a=1)


@pytest.mark.parametrize("data", [{1: 1, "1": 2}, {"deep": [{"1": 2, 1: 1}]}])
async def test_two_keys_that_are_one_in_json_are_refused(data: Any) -> None:
    jobs = Gantline("memory://")

    @jobs.job
    def keep(data: Any) -> Any:
        return data

    with pytest.raises(InvalidPayload, match="has the key 1 twice in JSON"):
        keep.prepare(data)

    @jobs.job(retry=1)
    def give(is_deep: bool) -> Any:
        return data

    async with jobs, jobs.running():
        ended = await (await give.send(is_deep=True)).wait(timeout=10)
    assert ended.last
    assert ended.last.error
    assert ended.last.error.code == ResultNotStorable.code


async def test_a_payload_that_is_left_out_is_made_of_the_defaults() -> None:
    jobs = Gantline("memory://")

    @jobs.job("one")
    async def one(a: int | None = 5) -> int | None:
        return a

    @jobs.job("two")
    async def two(ctx: Context, a: int = 5, b: int = 6) -> tuple[int, int]:
        if a == 1:
            ctx.follow_up(two, subject="followed")
        return a, b

    @jobs.job("needs")
    async def needs(a: int) -> int:
        return a

    async with asyncio.timeout(30), jobs.running():
        assert await (await one.submit()).result() == 5
        assert await (await one.submit(None)).result() is None
        assert await (await two.submit()).result() == (5, 6)
        assert await (await two.submit({"a": 1})).result() == (1, 6)
        (followed,) = [job async for job in jobs.find(subject="followed")]
        assert await two.handle(followed.job.job_id).result() == (5, 6)
        with pytest.raises(InvalidInput, match="Expected `int`, got `null`"):
            await needs.submit(*[])
    two.every(60)
    assert bytes(two.schedules[0].schedule.payload) == b'{"a":5,"b":6}'


def test_an_option_among_the_arguments_says_where_it_goes() -> None:
    jobs = Gantline("memory://")

    @jobs.job("one")
    def one(a: int) -> None: ...

    with pytest.raises(InvalidInput, match=r"'delay'.*\.options\(delay=…\)\.send\(…\)"):
        cast("Any", one).payload(1, delay=3)


def test_a_method_is_refused() -> None:
    class Shop:
        def sell(self, a: int) -> None: ...

    with pytest.raises(InvalidInput, match="it is a method, and no job has its object"):
        Gantline("memory://").job("sell")(Shop.sell)


def test_a_text_is_no_span() -> None:
    with pytest.raises(InvalidInput, match=r"timeout is '30'\. It must be a timedelta or seconds"):
        Gantline("memory://").job("late", timeout="30")  # type: ignore[call-overload]


async def test_the_context_may_stand_anywhere() -> None:
    jobs = Gantline("memory://")

    @jobs.job("first")
    async def first(ctx: Context, a: int) -> tuple[int, int]:
        return a, ctx.attempt

    @jobs.job("last")
    async def last(a: int, ctx: Context) -> tuple[int, int]:
        return a, ctx.attempt

    @jobs.job("by-name")
    async def by_name(a: int, *, ctx: Context) -> tuple[int, int]:
        return a, ctx.attempt

    @jobs.job("alone")
    async def alone(*, ctx: Context) -> int:
        return ctx.attempt

    async with asyncio.timeout(30), jobs.running():
        for job in (first, last, cast("Any", by_name)):
            assert await (await job.submit(7)).result() == (7, 1)
        assert await (await alone.submit()).result() == 1
