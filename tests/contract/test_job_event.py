"""Events as others are told them: the outcome document, and CloudEvents as their own SDK reads."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured_event

from gantline.contract.job_event import JobEvent
from gantline.contract.outcome import ErrorInfo
from gantline.contract.snapshot import LogEntry
from gantline.contract.status import Event, JobStatus, Reason
from gantline.testing.factories import make_job, number

AT = datetime(2026, 3, 1, 9, 30, 0, 123456, tzinfo=UTC)
JOB: dict[str, Any] = {"tenant_id": "acme", "subject_id": "order-7", "correlation_id": "c-1"}


def event(
    kind: Event = Event.COMPLETED,
    status: JobStatus = JobStatus.COMPLETED,
    *,
    job: dict[str, Any] | None = None,
    **fields: Any,
) -> JobEvent:
    entry = LogEntry(
        job_id=number(7),
        version=3,
        event=kind,
        status=status,
        reason=Reason.SUCCEEDED,
        at=AT,
        attempt=1,
        fence=1,
        started_at=AT - timedelta(seconds=2),
        **fields,
    )
    return JobEvent(42, make_job({"secret": "hush"}, job_id=number(7), **(job or JOB)), entry)


def told(one: JobEvent) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(one.document()))
    return decoded


def test_a_completed_job_is_told_with_its_result_and_never_its_payload() -> None:
    document = told(event(result=b'{"pages":3}'))
    assert document["jobId"] == str(UUID(int=7))
    assert (document["status"], document["version"], document["attempt"]) == ("Completed", 3, 1)
    assert document["result"] == {"pages": 3}
    assert document["completedAt"] == "2026-03-01T09:30:00.123456Z"
    assert (document["retryable"], document["errorCode"]) == (None, None)
    assert "hush" not in msgspec.json.encode(event().document()).decode()


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [
        (Event.RETRIED, JobStatus.QUEUED, True),
        (Event.FAILED, JobStatus.FAILED, False),
        (Event.POISONED, JobStatus.POISONED, False),
    ],
)
def test_a_failure_says_whether_it_will_be_tried_again(
    kind: Event, status: JobStatus, retryable: bool
) -> None:
    error = ErrorInfo("NETWORK_ERROR", "No answer.", "Traceback: secret detail")
    one = event(kind, status, error=error)
    document = told(one)
    assert one.type == f"job.{kind}"
    assert (document["retryable"], document["errorCode"]) == (retryable, "NETWORK_ERROR")
    assert (document["completedAt"] is None) == retryable
    assert "secret" not in str(document)


def test_only_progress_tells_how_far_it_is() -> None:
    progressed = event(Event.PROGRESSED, JobStatus.RUNNING, percent=40.5, phase="parsing")
    document = told(progressed)
    assert (document["progress"], document["phase"]) == (40.5, "parsing")
    assert not {"progress", "phase"} & told(event()).keys()


def test_the_same_event_told_again_is_the_same_byte_for_byte() -> None:
    first, again = (msgspec.json.encode(event(result=b"1").cloud_event("/w")) for _ in range(2))
    assert first == again
    assert event().event_id == f"{UUID(int=7)}.3"


def test_the_cloudevents_sdk_reads_our_form() -> None:
    one = event(result=b'{"pages":3}')
    body = msgspec.json.encode(one.cloud_event("/gantline/shop"))
    headers = {"content-type": "application/cloudevents+json"}
    read = from_structured_event(HTTPMessage(headers=headers, body=body))
    assert read.get_specversion() == "1.0"
    assert (read.get_id(), read.get_source()) == (one.event_id, "/gantline/shop")
    assert (read.get_type(), read.get_subject()) == ("gantline.job.completed", "order-7")
    assert read.get_time() == AT
    assert read.get_datacontenttype() == "application/json"
    assert read.get_extension("tenantid") == "acme"
    assert read.get_extension("correlationid") == "c-1"
    assert read.get_extension("sequence") == "00000000000000000042"
    assert read.get_data() == told(one)


def test_a_job_about_nothing_has_no_subject_for_the_sdk_refuses_an_empty_one() -> None:
    body = msgspec.json.encode(event(job={"tenant_id": "acme"}).cloud_event("/gantline"))
    headers = {"content-type": "application/cloudevents+json"}
    read = from_structured_event(HTTPMessage(headers=headers, body=body))
    assert read.get_subject() is None
    assert "correlationid" not in msgspec.json.decode(body)
