"""The recipes of docs/guides/recipes.md do what the page says."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gantline import JobPoisoned, JobSnapshot, JobStatus
from gantline.contract.flow import Gate
from gantline.testing import JobsTest
from tests.test_documentation import modules, page

Recipe = Callable[[str], dict[str, Any]]
TEXT = page("guides/recipes.md")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The names of a file of the page, run in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(file: str) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": file}
        exec(compile(modules(TEXT)[f"{file}.py"], file, "exec"), names)  # noqa: S102  # our own
        return names

    return run


async def test_a_chain_goes_on_at_the_step_that_follows(recipe: Recipe) -> None:
    names = recipe("steps")
    async with JobsTest(names["jobs"]) as kit:
        await names["encode"].submit("cat")
        assert (await kit.drain()).completed == 2
        assert (await kit.submitted(names["publish"])).one().payload == "cat.mp4"


async def test_what_follows_a_fan_out_is_submitted_once_by_the_last_part(recipe: Recipe) -> None:
    names = recipe("fan_out")
    async with JobsTest(names["jobs"]) as kit:
        await names["start"].submit("b-1")
        assert (await kit.drain()).completed == 5
        assert (await kit.submitted(names["report"])).one().payload == "b-1"


async def test_each_tenant_has_a_job_of_its_own(recipe: Recipe) -> None:
    names = recipe("tenants")
    async with JobsTest(names["jobs"]) as kit:
        for _ in range(2):
            await names["every_tenant"].submit(None)
            await kit.drain()
        found = await kit.submitted(names["invoice_all"])
        assert len(found) == 2


async def test_a_poll_ends_when_the_other_service_is_ready(recipe: Recipe) -> None:
    names = recipe("polling")
    async with JobsTest(names["jobs"]) as kit:
        handle = await names["fetch_export"].submit("e-1")
        await kit.drain()
        waiting: JobSnapshot = await handle.status()
        assert (waiting.status, waiting.attempt) == (JobStatus.QUEUED, 0)
        names["exports"]["e-1"] = "ready"
        await kit.run_for(timedelta(seconds=31))
        assert await handle.result() == "ready"


async def test_calls_of_a_service_have_a_gate_of_its_rate(recipe: Recipe) -> None:
    names = recipe("slowly")
    async with JobsTest(names["jobs"]) as kit:
        handle = await names["update_contact"].submit("c-1")
        await kit.drain()
        assert await handle.result() == "c-1 updated"
    (flow,) = names["update_contact"].flows
    assert flow.gate == Gate("crm", per_second=5, burst=1)


async def test_a_singleton_is_a_duplicate_until_it_has_completed(recipe: Recipe) -> None:
    names = recipe("singleton")
    async with JobsTest(names["jobs"]) as kit:
        assert not (await names["rebuild_index"].submit(None)).duplicate
        assert (await names["rebuild_index"].submit(None)).duplicate
        await kit.drain()
        kit.clock.advance(timedelta(seconds=1))
        assert not (await names["rebuild_index"].submit(None)).duplicate


async def test_the_same_content_is_the_same_job(recipe: Recipe) -> None:
    names = recipe("by_reference")
    async with JobsTest(names["jobs"]) as kit:
        handle = await names["upload"]("three short words")
        assert (await names["upload"]("three short words")).job_id == handle.job_id
        await kit.drain()
        assert await handle.result() == 3


async def test_progress_is_reported_up_to_the_end(recipe: Recipe) -> None:
    names = recipe("progress")
    async with JobsTest(names["jobs"]) as kit:
        handle = await names["convert"].submit(4)
        await kit.drain()
        assert await handle.result() == 4


async def test_a_redacted_error_leaves_no_secret_behind(
    recipe: Recipe, caplog: pytest.LogCaptureFixture
) -> None:
    names = recipe("redacted")
    async with JobsTest(names["jobs"]) as kit:
        handle = await names["charge"].submit("4111-1111", max_attempts=1)
        await kit.drain()
        with pytest.raises(JobPoisoned) as raised:
            await handle.result()
        job: JobSnapshot = await handle.status()
    assert job.last is not None
    assert job.last.error is not None
    assert "Redacted: ValueError" in job.last.error.detail
    for text in (job.last.error.detail, job.last.error.message, str(raised.value), caplog.text):
        assert "4111" not in text
