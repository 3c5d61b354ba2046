"""docs/guides/limits-and-hooks.md: what it says of caps and hooks is so."""

from typing import Any

import pytest

from gantline import Context, Gantline, JobFailed, QueueFull
from gantline.testing import JobsTest
from tests.test_documentation import modules, page

TEXT = page("guides/limits-and-hooks.md")


@pytest.fixture
def run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def names_of(file: str) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": file}
        exec(compile(modules(TEXT)[f"{file}.py"], file, "exec"), names)  # noqa: S102  # our own
        return names

    return names_of


async def test_a_full_type_refuses_submits_and_a_follow_up_is_not_refused() -> None:
    jobs = Gantline("memory://")

    @jobs.job(max_depth=0)
    async def last(value: int) -> None: ...

    @jobs.job
    async def first(value: int, ctx: Context) -> None:
        ctx.follow_up(last, value)

    async with JobsTest(jobs) as kit:
        with pytest.raises(QueueFull):
            await last.submit(1)
        await first.submit(1)
        assert (await kit.drain()).completed == 2


async def test_an_upload_is_refused_when_the_cap_is_reached(run: Any) -> None:
    names = run("limited")
    async with JobsTest(names["jobs"]):
        assert await names["upload"]("a")
        await names["transcode"].submit_many([f"v{number}" for number in range(999)])
        assert not await names["upload"]("b")


async def test_hooks_are_around_every_run_and_may_refuse_it(run: Any) -> None:
    names = run("hooked")
    async with JobsTest(names["jobs"]) as kit:
        handle = await names["greet"].submit("Ada")
        blocked = await names["greet"].submit("Eve", tenant="evil-corp")
        await kit.drain()
        assert await handle.result() == "Hello, Ada!"
        with pytest.raises(JobFailed, match="TENANT_BLOCKED"):
            await blocked.result()
    assert list(names["slowest"]) == ["greet"]
