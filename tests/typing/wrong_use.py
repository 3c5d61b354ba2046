"""Wrong uses that mypy must refuse; the test reads the expected codes off the comments."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import msgspec

from gantline import Context, Gantline, Handle, JobType, provide

jobs = Gantline("memory://")


class Order(msgspec.Struct):
    order_id: str


@jobs.job("ship")
async def ship(order: Order, ctx: Context) -> dict[str, int]:
    return {"parcels": 1}


@jobs.job("plain")
def plain(number: int) -> str:
    return str(number)


@jobs.job
async def bare(order: Order, ctx: Context) -> str:
    return order.order_id


@jobs.job(retry=5, timeout=30)
def without_a_name() -> int:
    return 1


@jobs.job("sweep")
async def sweep(ctx: Context) -> int:
    return ctx.attempt


@jobs.job("sweep-in-a-thread")
def sweep_in_a_thread(ctx: Context) -> int:
    return ctx.attempt


@jobs.job
def add(a: int, b: int = 2) -> int:
    return a + b


@jobs.job(retry=2)
async def add_later(ctx: Context, a: int, b: int = 2, *, exact: bool = False) -> int:
    return a + b


@jobs.job
async def add_with_a_context(a: int, b: str, ctx: Context) -> int:
    return a


def a_number(ctx: Context) -> int:
    return ctx.attempt


async def later_a_number() -> int:
    return 1


async def opened_number() -> AsyncIterator[int]:
    yield 1


def kept_number() -> Iterator[int]:
    yield 1


@jobs.job("provided")
async def provided(
    order: Order,
    ctx: Context,
    *,
    one: int = provide(a_number),
    two: int = provide(later_a_number),
    three: int = provide(opened_number),
    four: int = provide(kept_number),
) -> int:
    return one + two + three + four


@jobs.job("wrongly-provided")
async def wrongly_provided(
    order: Order,
    *,
    text: str = provide(a_number),  # expect: assignment
) -> None: ...


async def right() -> None:
    order_id: str = await (await bare.submit(Order("o-1"), delay=5)).result()
    one: int = without_a_name.submit_sync(None).result()
    swept: int = await (await sweep.submit(None)).result()
    await sweep_in_a_thread.submit(None)
    handle = await ship.submit(Order("o-1"), delay=timedelta(minutes=1), priority=1, tenant="t")
    result: dict[str, int] = await handle.result(timeout=5)
    text: str = plain.submit_sync(3, priority=1).result()
    kept: str = await plain.handle(handle.job_id).result()
    many: list[Handle[str]] = await plain.submit_many([1, 2])
    del result, text, kept, many, swept, order_id, one


async def right_arguments() -> None:
    total: int = await (await add.send(1, b=2)).result()
    total = add.send_sync(1).result()
    total = await (await add.options(delay=5, tenant="t").send(1, 2)).result()
    total = await (await add_later.send(1, exact=True)).result()
    total = await (await add_with_a_context.send(1, "2")).result()
    total = without_a_name.send_sync().result()
    total = await (await sweep.send()).result()
    total = await (await provided.send(Order("o-1"))).result()
    text: str = await (await plain.send(number=3)).result()
    parcels: dict[str, int] = await (await ship.send(Order("o-1"))).result()
    await add.submit({"a": 1})
    await add.submit_many([{"a": 1}, add.payload(1, b=2)])
    await sweep.submit()
    without_a_name.submit_sync()
    typed: JobType[[int], str] = plain
    await typed.send(1)
    del total, text, parcels


async def wrong_arguments() -> None:
    await add.send("x")  # expect: arg-type
    await add.send(1, 2, 3)  # expect: call-arg
    await add.send(1, c=2)  # expect: call-arg
    await add.send()  # expect: call-arg
    add.send_sync("x")  # expect: arg-type
    await add.options(dealy=5).send(1)  # expect: call-arg
    await add.options(delay=5).send("x")  # expect: arg-type
    await add_later.send("x")  # expect: arg-type
    await add_with_a_context.send(1, 2)  # expect: arg-type
    await sweep.send(1)  # expect: call-arg
    await ship.send("o-1")  # expect: arg-type
    await add.submit("x")  # expect: call-overload
    add.payload("x")  # expect: arg-type
    text: str = await (await add.send(1)).result()  # expect: assignment
    del text


async def wrong() -> None:
    await ship.submit("o-1")  # expect: call-overload
    await ship.submit(Order("o-1"), delay="5 s")  # expect: call-overload
    await ship.submit(Order("o-1"), nonsense=True)  # expect: call-overload
    jobs.job("misspelt", retrys=5)  # expect: call-overload
    await bare.submit("o-1")  # expect: call-overload
    await plain.submit("three")  # expect: call-overload
    await plain.submit_many(["one"])  # expect: list-item
    await sweep.submit("everything")  # expect: arg-type
    await plain.submit_many([1], nonsense=True)  # expect: call-overload
    plain.submit_sync(3, delay="5 s")  # expect: call-overload
    handle = await plain.submit(3)
    number: int = await handle.result()  # expect: assignment
    parcels = (await (await ship.submit(Order("o-1"))).result()).parcels  # expect: attr-defined
    del number, parcels


def in_a_handler(ctx: Context) -> None:
    ctx.follow_up(plain, "three")  # expect: misc
    ctx.follow_up(plain, 3, delay="5 s")  # expect: call-overload
    number: int = next(ctx.until_cancelled([1]))
    text: str = next(ctx.until_cancelled([number]))  # expect: assignment
    ctx.until_cancelled(len(text))  # expect: call-overload
