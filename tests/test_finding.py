"""Jobs are found again: by id, and by what is known of them."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from gantline import Gantline, InvalidInput, JobNotFound, JobStatus, Permanent
from gantline.testing.clock import FakeClock

pytestmark = pytest.mark.matrix


class Application:
    def __init__(self) -> None:
        self.jobs = Gantline("memory://")
        self.clock = FakeClock()
        self.jobs.move_to("memory://", clock=self.clock)

        @self.jobs.job("doubled")
        async def doubled(value: int) -> list[datetime]:
            return [datetime(2026, 1, value, tzinfo=UTC)]

        @self.jobs.job("refused")
        async def refused(value: int) -> None:
            raise Permanent("CARD_DECLINED", "for good")

        self.doubled, self.refused = doubled, refused


@pytest.fixture
def app() -> Application:
    return Application()


async def test_a_job_is_found_by_its_id(app: Application) -> None:
    async with app.jobs, app.jobs.running():
        submitted = await app.doubled.submit(2, tenant="acme")
        found = app.jobs.handle(str(submitted.job_id), tenant="acme")
        assert await found.result(timeout=10) == ["2026-01-02T00:00:00Z"]
        typed = app.doubled.handle(submitted.job_id, tenant="acme")
        assert await typed.result() == [datetime(2026, 1, 2, tzinfo=UTC)]
        job = await app.jobs.get(submitted.job_id, tenant="acme")
        assert (job.status, job.job.job_type) == (JobStatus.COMPLETED, "doubled")
        for wrong in (submitted.job_id, uuid4()):  # the first is of another tenant
            with pytest.raises(JobNotFound):
                await app.jobs.get(wrong)
        with pytest.raises(InvalidInput, match="job_id is 'x'"):
            app.jobs.handle("x")


def test_code_that_is_not_async_finds_jobs_too(app: Application) -> None:
    job_id = app.doubled.submit_sync(2).job_id
    assert app.jobs.get_sync(job_id).status is JobStatus.QUEUED
    assert app.jobs.handle_sync(job_id).status().job.job_id == job_id
    assert app.doubled.handle_sync(job_id).cancel() is JobStatus.CANCELLED
    assert [job.job.job_id for job in app.jobs.find_sync(status="cancelled")] == [job_id]
    assert app.jobs.find_sync(status=JobStatus.QUEUED) == []


async def test_jobs_are_found_by_what_is_known_of_them(app: Application) -> None:
    async with app.jobs:
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        first = await app.doubled.submit(1, subject="s", owner="me", correlation_id="c")
        app.clock.advance(timedelta(hours=1))
        other = await app.refused.submit(2, queue="other", parent=first.job_id)
        later = await app.refused.submit(4, delay=timedelta(hours=2))
        theirs = await app.refused.submit(3, tenant="theirs")
        async with app.jobs.running() as worker:
            await first.wait(timeout=10)
            worker.stop()
        ended = await app.jobs.get(first.job_id)
        for options, expected in (
            ({}, [later, other, first]),
            ({"limit": 1}, [later]),
            ({"status": "Completed"}, [first]),
            ({"status": {JobStatus.COMPLETED, "queued"}}, [later, other, first]),
            ({"job_type": ["doubled", "unknown"]}, [first]),
            ({"queue": "other"}, [other]),
            ({"subject": "s", "owner": "me", "correlation_id": "c"}, [first]),
            ({"parent": first.job_id}, [other]),
            ({"since": timedelta(minutes=1)}, [later, other]),
            ({"since": 60, "subject": None}, [later, other]),
            ({"until": timedelta(minutes=1), "since": long_ago}, [first]),
            ({"until": ended.job.created_at}, []),
            ({"min_attempts": 1}, [first]),
            ({"status": "scheduled"}, [later]),
            ({"status": "Queued", "due_before": timedelta(hours=1)}, [other]),
            ({"due_before": 7201}, [later, other]),
            ({"tenant": "theirs"}, [theirs]),
            ({"all_tenants": True}, [theirs, later, other, first]),
            ({"error_code": "CARD_DECLINED"}, []),
        ):
            found = [job.job.job_id async for job in app.jobs.find(**options)]
            assert found == [one.job_id for one in expected], options


async def test_a_dead_job_is_found_by_its_code(app: Application) -> None:
    async with app.jobs, app.jobs.running():
        dead = await app.refused.submit(1)
        await dead.wait(timeout=10)
        (found,) = [job async for job in app.jobs.find(error_code=("CARD_DECLINED", "OTHER"))]
        assert found == await dead.status()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"typ": "x"}, "A search has no option 'typ'"),
        ({"stat": "x"}, "Is 'status' meant?"),
        ({"status": "Nowhere"}, "'Nowhere' is not a job status. Use one of Queued"),
        ({"since": "yesterday"}, "since is 'yesterday'"),
        ({"since": datetime(2026, 1, 1)}, "needs its time zone"),  # noqa: DTZ001  # refused
        ({"job_type": 5}, "job_type is 5"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(
    app: Application, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.jobs.find_sync(**options)  # type: ignore[arg-type]  # this is what is refused
    assert message in str(caught.value)


async def test_all_pages_are_read(app: Application) -> None:
    async with app.jobs:
        handles = await app.doubled.submit_many(range(2100))
        found = [job.job.job_id async for job in app.jobs.find()]
        assert set(found) == {one.job_id for one in handles}
        assert len([job async for job in app.jobs.find(limit=1001)]) == 1001
