"""Every verb of the client against a served API: the documents and errors of the library."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from gantline.api.documents import AcceptedDocument, JobDocument, StatusDocument
from gantline.client import RedriveByFilter, new_job
from gantline.contract.errors import (
    Forbidden,
    GantlineError,
    IllegalTransition,
    InvalidCredentials,
    InvalidInput,
    InvalidPayload,
    JobIdConflict,
    JobNotFound,
    JobPurged,
    JobTypeDisabled,
    NotAuthenticated,
    NotThere,
    PayloadTooLarge,
    QueueFull,
    RequestKeyReused,
    SubmitConflict,
    UnknownJobType,
    VersionMismatch,
)
from gantline.contract.not_completed import JobFailed
from gantline.contract.status import JobStatus
from tests.api.application import make_jobs
from tests.api.playing import PERMANENT, run_all
from tests.client.conftest import Asker, asking
from tests.servers.http_api import ApiProcess


class Document(msgspec.Struct, rename="camel"):
    document_id: str
    row_version: int = 1


@dataclass
class Indexed:
    pages: int


def fresh() -> Document:
    return Document(str(uuid4()))


async def submitted(ask: Asker, document: Document | None = None) -> AcceptedDocument:
    accepted: AcceptedDocument = await ask("submit", "document-indexing", document or fresh())
    return accepted


class Worker:
    """Plays the worker on the server's store."""

    def __init__(self, server: ApiProcess) -> None:
        self._jobs = make_jobs(server.store)

    async def run(self, outcome: object = None) -> None:
        async with self._jobs:
            await run_all(self._jobs, outcome)  # type: ignore[arg-type]  # one of the outcomes


async def test_a_submit_is_answered_with_the_documents_of_the_api(ask: Asker) -> None:
    document = fresh()
    accepted = await submitted(ask, document)
    assert isinstance(accepted, AcceptedDocument)
    assert accepted.subject_id == document.document_id
    assert accepted.status_url == f"/api/jobs/{accepted.job_id}/status"
    assert (accepted.status, accepted.duplicate) == (JobStatus.QUEUED, False)
    status = await ask("status", accepted.job_id)
    assert isinstance(status, StatusDocument)
    assert (status.status, status.job_type) == (JobStatus.QUEUED, "document-indexing")
    job = await ask("job", str(accepted.job_id))
    assert isinstance(job, JobDocument)
    assert job.created_by == "user:operator"
    assert job.payload["documentId"] == document.document_id
    assert await ask("history", accepted.job_id) == []
    assert await ask("attempts", accepted.job_id) == []
    why = await ask("why", accepted.job_id)
    assert (why.job_id, why.reasons[0].code) == (accepted.job_id, "NO_WORKERS")


async def test_all_that_can_be_said_of_a_job_arrives(ask: Asker) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    parts = {
        "job_id": uuid4(),
        "subject": "s",
        "correlation_id": "c-1",
        "idempotency_key": str(uuid4()),
        "queue": "slow",
        "priority": 3,
        "max_attempts": 7,
    }
    await ask("submit", "document-indexing", fresh(), at=at, **parts)
    job = await ask("job", parts["job_id"])
    assert (job.external_id, job.subject_id, job.correlation_id) == (parts["job_id"], "s", "c-1")
    assert (job.queue, job.priority, job.max_attempts) == ("slow", 3, 7)
    assert job.idempotency_key == parts["idempotency_key"]
    assert (job.scheduled_at, job.state) == (at, "Scheduled")
    delayed = await ask("submit", "sweep", delay=timedelta(minutes=5))
    assert (await ask("status", delayed.job_id)).state == "Scheduled"


async def test_a_job_is_known_by_the_id_that_it_was_submitted_with_in_its_tenant(
    kind: str, server: ApiProcess, ask: Asker
) -> None:
    given, document = uuid4(), fresh()
    accepted = await ask("submit", "document-indexing", document, job_id=given)
    again = await ask("submit", "document-indexing", document, job_id=given)
    assert (again.job_id, again.duplicate) == (accepted.job_id, True)
    with pytest.raises(JobIdConflict):
        await ask("submit", "document-indexing", fresh(), job_id=given)
    assert (await ask("status", given)).job_id == accepted.job_id
    assert (await ask("cancel", given)).job_id == accepted.job_id
    async with asking(kind, server.url, "eve") as theirs:
        with pytest.raises(JobNotFound):
            await theirs("status", given)
        other = await theirs("submit", "sweep", job_id=given)
        assert (other.duplicate, (await theirs("status", given)).job_id) == (False, other.job_id)


async def test_a_request_with_the_same_key_finds_the_same_job(ask: Asker) -> None:
    key, document = f'a "key" \\ {uuid4()}', fresh()
    first = await ask("submit", "document-indexing", document, request_key=key)
    again = await ask("submit", "document-indexing", document, request_key=key)
    assert (again.job_id, again.duplicate) == (first.job_id, True)
    with pytest.raises(RequestKeyReused):
        await ask("submit", "document-indexing", fresh(), request_key=key)


async def test_each_call_is_a_request_of_its_own(ask: Asker) -> None:
    first, second = await ask("submit", "sweep"), await ask("submit", "sweep")
    assert first.job_id != second.job_id


async def test_a_batch_is_sent_in_as_many_requests_as_it_takes(ask: Asker) -> None:
    subject = str(uuid4())
    jobs = [new_job("sweep", subject=subject) for _ in range(1203)]
    jobs[1001] = new_job("unknown")
    batch = await ask("submit_many", jobs)
    assert (batch.accepted, batch.rejected, len(batch.items)) == (1202, 1, 1203)
    assert batch.items[1001].problem.error_code == "UNKNOWN_JOB_TYPE"
    found = await ask.listed("jobs", subject=subject)
    assert len({one.job_id for one in found}) == 1202
    assert len(await ask.listed("jobs", subject=subject, limit=250)) == 250
    assert await ask.listed("jobs", subject=str(uuid4())) == []


async def test_a_batch_with_the_same_key_is_not_submitted_twice(ask: Asker) -> None:
    key, jobs = str(uuid4()), [new_job("sweep"), new_job("sweep")]
    first = await ask("submit_many", jobs, request_key=key)
    again = await ask("submit_many", jobs, request_key=key)
    assert [one.job.job_id for one in again.items] == [one.job.job_id for one in first.items]
    assert all(one.job.duplicate for one in again.items)


async def test_jobs_are_listed_by_what_is_asked_for(ask: Asker) -> None:
    accepted = await submitted(ask)
    wanted = {
        "status": ["Queued", JobStatus.RUNNING],
        "job_type": ["document-indexing"],
        "queue": ["documents"],
        "subject": accepted.subject_id,
        "owner": "user:operator",
        "since": timedelta(minutes=5),
        "until": datetime.now(UTC) + timedelta(minutes=5),
        "min_attempts": 0,
        "internal": True,
        "all_tenants": True,
    }
    assert [one.job_id for one in await ask.listed("jobs", **wanted)] == [accepted.job_id]
    wanted["status"] = ["Failed"]
    assert await ask.listed("jobs", **wanted) == []


async def test_a_job_is_cancelled_redriven_and_deleted(ask: Asker) -> None:
    accepted = await submitted(ask)
    seen = await ask("status", accepted.job_id)
    assert (await ask("cancel", accepted.job_id, only_if=seen)).status is JobStatus.CANCELLED
    with pytest.raises(VersionMismatch):
        await ask("redrive", accepted.job_id, only_if=seen)
    assert (await ask("redrive", accepted.job_id)).status is JobStatus.QUEUED
    with pytest.raises(IllegalTransition):
        await ask("redrive", accepted.job_id)
    await ask("cancel", accepted.job_id)
    events = [entry.event for entry in await ask("history", accepted.job_id)]
    assert events == ["cancelled", "redriven", "cancelled"]
    assert await ask("delete", accepted.job_id) is None
    with pytest.raises(JobPurged) as caught:
        await ask("status", accepted.job_id)
    assert caught.value.job_id == accepted.job_id


async def test_an_edited_redrive_is_a_new_job(ask: Asker) -> None:
    accepted = await submitted(ask)
    await ask("cancel", accepted.job_id)
    new = await ask("redrive_edited", accepted.job_id, queue="slow", priority=3)
    job = await ask("job", new.job_id)
    assert (job.parent_job_id, job.queue, job.priority) == (accepted.job_id, "slow", 3)
    assert job.payload["documentId"] == accepted.subject_id
    other = await ask("redrive_edited", accepted.job_id, Document("d2"), delay=60)
    assert (await ask("job", other.job_id)).payload["documentId"] == "d2"


async def test_dead_letters_are_counted_listed_and_redriven(ask: Asker, server: ApiProcess) -> None:
    accepted = await submitted(ask)
    await Worker(server).run(PERMANENT)
    summary = await ask("dead_summary")
    assert summary.total >= 1
    mine = {"subject": accepted.subject_id}
    (dead,) = await ask.listed("dead_letters", **mine, job_type=["document-indexing"])
    assert (dead.job_id, dead.error_code) == (accepted.job_id, "DOCUMENT_UNKNOWN")
    assert await ask.listed("dead_letters", **mine, reason=["Nothing"]) == []
    assert (await ask("dead_letter", accepted.job_id)).status is JobStatus.FAILED
    chosen = RedriveByFilter(subject_id=accepted.subject_id, dry_run=True)
    assert (await ask("redrive_dead_letters", chosen)).matching == 1
    report = await ask("redrive_dead_letters", RedriveByFilter(job_ids=[accepted.job_id]))
    assert (report.redriven, report.failed) == (1, 0)
    (attempt,) = await ask("attempts", accepted.job_id)
    assert (attempt.attempt, attempt.error_code) == (1, "DOCUMENT_UNKNOWN")


async def test_queues_and_types_are_looked_at_and_switched(kind: str, server: ApiProcess) -> None:
    async with asking(kind, server.url, "system", tenant="acme") as ask:
        await ask("submit", "mail", "a@example.com")
        queues = await ask("queues")
        assert ("default" in [one.queue for one in queues.items], queues.omitted) == (True, 0)
        (queue,) = (await ask("queues", queue=["default"], limit=1)).items
        counted = await ask("statistics", queue=["default"], job_type=["mail"], limit=1)
        assert (queue.queue, counted.lanes[0].job_type) == ("default", "mail")
        assert (await ask("pause_queue", "a/b c")).paused is True
        assert (await ask("cap_queue", "a/b c", 5)).max_depth == 5
        capped = await ask("cap_queue", "a/b c", None, per_tenant=3)
        assert (capped.max_depth, capped.max_depth_per_tenant) == (None, 3)
        assert (await ask("cap_queue", "a/b c", 6)).max_depth_per_tenant == 3
        free = await ask("cap_queue", "a/b c", None, per_tenant=None)
        assert (free.max_depth, free.max_depth_per_tenant) == (None, None)
        assert (await ask("resume_queue", "a/b c")).paused is False
        assert "mail" in [one.job_type for one in await ask("job_types")]
        assert (await ask("pause_type", "mail")).paused is True
        assert (await ask("resume_type", "mail")).paused is False
        assert (await ask("disable_type", "mail")).disabled is True
        with pytest.raises(JobTypeDisabled) as caught:
            await ask("submit", "mail", "a@example.com")
        assert caught.value.retry_after_seconds == 5
        assert (await ask("enable_type", "mail")).disabled is False
        schema = (await ask("job_type", "mail")).payload_schema
        assert schema == {"type": "string"}
        with pytest.raises(NotThere):
            await ask("job_type", "unknown")


async def test_statistics_count_the_tenants_jobs(ask: Asker) -> None:
    before = await ask("scale", queue=["documents"])
    await submitted(ask)
    after = await ask("scale", queue=["documents"], job_type=["document-indexing"])
    assert after.backlog == before.backlog + 1
    statistics = await ask("statistics")
    assert statistics.queued >= 1
    assert "documents" in [lane.queue for lane in statistics.lanes]


async def test_a_wait_lasts_until_the_job_has_ended(kind: str, working: ApiProcess) -> None:
    async with asking(kind, working.url, "alice") as ask:
        accepted = await submitted(ask)
        status = await ask("wait", accepted.job_id, timeout=60)
        assert status.status is JobStatus.COMPLETED
        assert status.result == {"pages": 3}
        status = await ask("submit_and_wait", "document-indexing", fresh(), timeout=60)
        assert status.status is JobStatus.COMPLETED
        missing = Document("missing", int(datetime.now(UTC).timestamp() * 1000) % 2**31)
        status = await ask("submit_and_wait", "document-indexing", missing)
        assert (status.status, status.error_code) == (JobStatus.FAILED, "DOCUMENT_UNKNOWN")


async def test_a_result_has_the_type_that_is_named(kind: str, working: ApiProcess) -> None:
    async with asking(kind, working.url, "alice") as ask:
        accepted = await submitted(ask)
        assert await ask("result", accepted.job_id, Indexed, timeout=60) == Indexed(pages=3)
        with pytest.raises(InvalidInput, match="not of the type that you named: #"):
            await ask("result", accepted.job_id, list[int], timeout=60)
        swept = await ask("submit", "sweep")
        assert await ask("result", swept.job_id, type(None), timeout=60) is None
        missing = Document("missing", int(datetime.now(UTC).timestamp() * 1000) % 2**31)
        accepted = await ask("submit", "document-indexing", missing)
        with pytest.raises(JobFailed, match="DOCUMENT_UNKNOWN, There is no such") as failed:
            await ask("result", accepted.job_id, Indexed, timeout=60)
        assert failed.value.status.error_code == "DOCUMENT_UNKNOWN"


async def test_a_wait_that_takes_too_long_says_so(ask: Asker) -> None:
    accepted = await submitted(ask)
    with pytest.raises(TimeoutError, match=str(accepted.job_id)):
        await ask("wait", accepted.job_id, timeout=0.2)
    for timeout in (0, 0.2):
        with pytest.raises(TimeoutError, match="is still Queued"):
            await ask("submit_and_wait", "document-indexing", fresh(), timeout=timeout)


async def test_what_is_refused_is_the_librarys_own_error(ask: Asker) -> None:
    nobody = uuid4()
    with pytest.raises(JobNotFound) as not_found:
        await ask("status", nobody)
    assert not_found.value.job_id == nobody
    assert str(UUID(not_found.value.correlation_id)) == not_found.value.correlation_id
    with pytest.raises(InvalidPayload) as invalid:
        await ask("submit", "document-indexing", {"rowVersion": "five"})
    assert invalid.value.problems
    with pytest.raises(UnknownJobType):
        await ask("submit", "unknown")
    with pytest.raises(PayloadTooLarge):
        await ask("submit", "mail", "x" * 100_000)
    with pytest.raises(PayloadTooLarge):
        await ask("submit", "mail", "x" * 2_000_000)
    key = str(uuid4())
    await ask("submit", "mail", "a@b", idempotency_key=key, queue="a")
    with pytest.raises(SubmitConflict):
        await ask("submit", "mail", "c@d", idempotency_key=key, queue="a")
    taken = (await ask("submit", "sweep")).job_id
    with pytest.raises(JobIdConflict):
        await ask("submit", "mail", "c@d", job_id=taken, queue="b")
    with pytest.raises(Forbidden):
        await ask("pause_queue", "documents")
    with pytest.raises(Forbidden, match="jobs:route"):
        await ask("submit", "mail", "a@b", queue="documents")


async def test_a_full_queue_says_when_to_come_again(kind: str, server: ApiProcess) -> None:
    async with asking(kind, server.url, "system", tenant="full") as ask:
        await ask("cap_queue", "full", 0)
        async with asking(kind, server.url, "alice") as alice:
            with pytest.raises(QueueFull) as caught:
                await alice("submit", "sweep", queue="full")
    assert caught.value.retry_after_seconds == 5


@pytest.mark.parametrize("key", [None, "mallory", "eve"])
async def test_nobody_and_others_are_kept_out(
    kind: str, server: ApiProcess, ask: Asker, key: str | None
) -> None:
    accepted = await submitted(ask)
    errors = {None: NotAuthenticated, "mallory": InvalidCredentials, "eve": JobNotFound}
    expected: type[GantlineError] = errors[key]
    async with asking(kind, server.url, key) as other:
        with pytest.raises(expected) as caught:
            await other("job", accepted.job_id)
    assert caught.value.correlation_id


@pytest.mark.parametrize("job_id", ["", "x", "../../stats", "00000000"])
async def test_what_is_no_id_is_refused_before_it_is_sent(ask: Asker, job_id: str) -> None:
    with pytest.raises(InvalidInput, match="is not a job id"):
        await ask("status", job_id)


async def test_an_instant_needs_its_time_zone(ask: Asker) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001  # this is what is refused
    with pytest.raises(InvalidInput, match="time zone"):
        await ask("submit", "sweep", at=naive)
    with pytest.raises(InvalidInput, match="time zone"):
        await ask.listed("jobs", since=naive)


@pytest.mark.parametrize("key", ["", "ä", "x" * 201, "a\nb"])
async def test_a_request_key_must_fit_into_a_header(ask: Asker, key: str) -> None:
    with pytest.raises(InvalidInput, match="request key"):
        await ask("submit", "sweep", request_key=key)
