"""Wrong uses that mypy must refuse; the test reads the expected codes off the comments."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import msgspec

from gantline import Context, Gantline, Handle, provide

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


async def wrong() -> None:
    await ship.submit("o-1")  # expect: arg-type
    await ship.submit(Order("o-1"), delay="5 s")  # expect: arg-type
    await ship.submit(Order("o-1"), nonsense=True)  # expect: call-arg
    jobs.job("misspelt", retrys=5)  # expect: call-overload
    await bare.submit("o-1")  # expect: arg-type
    await plain.submit("three")  # expect: arg-type
    await plain.submit_many(["one"])  # expect: list-item
    await sweep.submit("everything")  # expect: arg-type
    await plain.submit_many([1], nonsense=True)  # expect: call-arg
    plain.submit_sync(3, delay="5 s")  # expect: arg-type
    handle = await plain.submit(3)
    number: int = await handle.result()  # expect: assignment
    parcels = (await (await ship.submit(Order("o-1"))).result()).parcels  # expect: attr-defined
    del number, parcels


@jobs.job("three")  # expect: arg-type
async def three(a: int, b: int, c: int) -> None: ...


def in_a_handler(ctx: Context) -> None:
    ctx.follow_up(plain, "three")  # expect: misc
    ctx.follow_up(plain, 3, delay="5 s")  # expect: arg-type
    number: int = next(ctx.until_cancelled([1]))
    text: str = next(ctx.until_cancelled([number]))  # expect: assignment
    ctx.until_cancelled(len(text))  # expect: call-overload
