"""Results keep their type, or the job is Failed and says which field cannot be stored."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

from gantline import Context, Gantline, InvalidInput, JobDefaults, JobStatus, JobType, Retry
from gantline.contract.codec import codec_for
from gantline.contract.errors import Code
from gantline.contract.snapshot import JobSnapshot
from gantline.worker.handler import RunIn
from tests.returning_jobs import (
    FUNCTIONS,
    KEPT,
    NOT_STORABLE,
    SIGNALS,
    Order,
    Price,
    Unknown,
)

STORES, PLACES = ("memory", "sqlite"), ("loop", "thread", "process")
WAYS = [*product(STORES, PLACES), ("sqlite", "transaction")]


def on_the_loop(function: Callable[[], Any]) -> Callable[..., Any]:
    async def run() -> Any:
        return function()

    run.__annotations__ = function.__annotations__
    return run


def in_a_transaction(function: Callable[[], Any]) -> Callable[..., Any]:
    async def run(ctx: Context) -> Any:
        async with ctx.transaction(result=function()):
            pass

    run.__annotations__ = function.__annotations__ | {"ctx": Context}
    return run


def declare(jobs: Gantline, name: str, run_in: str, **options: Any) -> JobType[..., Any]:
    function: Callable[..., Any] = FUNCTIONS[name]
    if run_in == "transaction":
        function = in_a_transaction(function)
    elif run_in == "loop":
        function = on_the_loop(function)
    where = None if run_in == "transaction" else RunIn(run_in)
    return jobs.job(name, run_in=where, **options)(function)


def make(store: str, tmp_path: Path) -> Gantline:
    return Gantline("memory://" if store == "memory" else f"sqlite:///{tmp_path}/gantline.db")


@pytest.mark.parametrize(("store", "run_in"), WAYS)
async def test_a_result_comes_back_as_its_declared_type(
    store: str, run_in: str, tmp_path: Path
) -> None:
    jobs = make(store, tmp_path)
    types = {name: declare(jobs, name, run_in) for name in KEPT}
    got = {}
    async with jobs, jobs.running():
        handles = {name: await job.submit(None) for name, job in types.items()}
        for name, handle in handles.items():
            try:
                got[name] = await handle.result(timeout=30)
            except Exception as error:
                got[name] = error
    assert got == {
        name: case.value if case.comes_back_as is ... else case.comes_back_as
        for name, case in KEPT.items()
    }
    assert {name: type(value) for name, value in got.items()} == {
        name: type(case.value if case.comes_back_as is ... else case.comes_back_as)
        for name, case in KEPT.items()
    }


@pytest.mark.parametrize(("store", "run_in"), WAYS)
async def test_a_result_that_cannot_be_stored_fails_the_job_and_names_the_field(
    store: str, run_in: str, tmp_path: Path
) -> None:
    jobs = make(store, tmp_path)
    # Not even a classifier that tries everything again has it tried again.
    types = {name: declare(jobs, name, run_in, classify=try_again) for name in NOT_STORABLE}
    ended: dict[str, JobSnapshot] = {}
    async with jobs, jobs.running():
        handles = {name: await job.submit(None) for name, job in types.items()}
        for name, handle in handles.items():
            ended[name] = await handle.wait(timeout=30)
    failed = (JobStatus.FAILED, Code.RESULT_NOT_STORABLE, 1)
    assert {name: shown(job) for name, job in ended.items()} == dict.fromkeys(NOT_STORABLE, failed)
    for name, job in ended.items():
        assert job.last is not None
        assert job.last.error is not None
        assert NOT_STORABLE[name].message in job.last.error.message
        assert "payload" not in job.last.error.message


def try_again(error: BaseException) -> BaseException:
    return Retry()


def shown(job: JobSnapshot) -> tuple[JobStatus, str, int]:
    code = job.last.error.code if job.last and job.last.error else ""
    return job.status, code, job.shown_attempt


@pytest.mark.parametrize(("store", "run_in"), WAYS)
async def test_a_type_that_omits_its_result_stores_none_and_completes(
    store: str, run_in: str, tmp_path: Path
) -> None:
    jobs = make(store, tmp_path)
    types = [declare(jobs, name, run_in, result="omit") for name in ("model", "no_json")]
    async with jobs, jobs.running():
        for job in types:
            handle = await job.submit(None)
            assert await handle.result(timeout=30) is None
            last = (await handle.status()).last
            assert last is not None
            assert last.result is None


def test_anything_else_than_keep_or_omit_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"result is 'drop'.*keep.*omit"):
        Gantline("memory://").job("drop", result="drop")  # type: ignore[call-overload]  # on purpose


async def test_a_handle_that_blocks_gives_the_declared_type_too(tmp_path: Path) -> None:
    jobs = make("sqlite", tmp_path)
    job = declare(jobs, "dataclass_of_models", "thread")
    async with jobs, jobs.running():
        handle = await asyncio.to_thread(job.submit_sync, None)
        got = await asyncio.to_thread(handle.result, 30)
    assert got == KEPT["dataclass_of_models"].value


async def test_a_result_that_cannot_be_stored_takes_back_what_its_transaction_wrote(
    tmp_path: Path,
) -> None:
    jobs = make("sqlite", tmp_path)

    @jobs.job("book")
    async def book(value: int, ctx: Context) -> int:
        async with ctx.transaction(result="booked") as connection:
            connection.execute("CREATE TABLE booked (n INTEGER)")
        return value

    async with jobs, jobs.running():
        job = await (await book.submit(1)).wait(timeout=30)
    assert shown(job) == (JobStatus.FAILED, Code.RESULT_NOT_STORABLE, 1)
    with sqlite3.connect(tmp_path / "gantline.db") as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE name = 'booked'")
        assert found.fetchall() == []
    connection.close()


async def test_what_is_returned_after_a_transaction_is_neither_used_nor_refused(
    tmp_path: Path,
) -> None:
    jobs = make("sqlite", tmp_path)

    @jobs.job("book")
    async def book(value: int, ctx: Context) -> int:
        async with ctx.transaction(result=value):
            pass
        return "something else"  # type: ignore[return-value]  # on purpose

    async with jobs, jobs.running():
        assert await (await book.submit(1)).result(timeout=30) == 1


async def test_a_result_of_an_older_declaration_is_refused_with_its_path() -> None:
    jobs = Gantline("memory://")

    @jobs.job("old")
    async def old() -> dict[str, str]:
        return {"amount": "much"}

    @jobs.job("new")
    async def new() -> Price:
        return Price(amount=Decimal(1))

    async with jobs, jobs.running():
        handle = await old.submit(None)
        await handle.wait(timeout=30)
        with pytest.raises(InvalidInput, match=r"result is not of the declared type: #/amount"):
            await new.handle(handle.job_id).result()


def test_the_schema_of_a_result_has_the_models_inside_of_it() -> None:
    schema = codec_for(Order).schema()
    order = schema["$defs"]["Order"]["properties"]
    assert order["price"]["properties"]["currency"]["type"] == "string"
    assert order["offers"]["items"]["properties"]["price"] == {"$ref": "#/$defs/Price"}
    assert schema["$defs"]["Price"]["type"] == "object"
    assert codec_for(list[Unknown]).schema() == {"type": "array", "items": {"title": "Unknown"}}


@pytest.mark.parametrize("result", ["keep", "omit"])
@pytest.mark.parametrize("run_in", PLACES)
async def test_a_signal_that_is_returned_and_not_raised_fails_the_job(
    run_in: str, result: Literal["keep", "omit"], tmp_path: Path
) -> None:
    """It is no result, also where none is kept; and what a dependency opened is not committed."""
    ended: list[str] = []

    @asynccontextmanager
    async def transaction(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            ended.append("rolled back")
            raise
        ended.append("committed")

    jobs = Gantline(f"sqlite:///{tmp_path}/gantline.db", defaults=JobDefaults(hooks=(transaction,)))
    types = {
        name: jobs.job(name, run_in=RunIn(run_in), result=result)(
            on_the_loop(function) if run_in == "loop" else function
        )
        for name, function in SIGNALS.items()
    }
    async with jobs, jobs.running():
        for name, job in types.items():
            handle = await job.submit(None)
            await handle.wait(timeout=30)
            status = await handle.status()
            assert (status.status, status.attempt) == (JobStatus.FAILED, 1), name
            assert status.last
            assert status.last.error
            assert status.last.error.code == Code.RESULT_NOT_STORABLE
            assert f"returned {name}, which says" in status.last.error.message
            assert f"Write `raise {name}(…)`." in status.last.error.message
    if run_in != "process":  # there the hooks are entered in the child
        assert ended == ["rolled back"] * len(SIGNALS)
