"""The gate: what endpoints are answered, and what is written down about it."""

import json
import logging
from typing import Any
from uuid import uuid4

import pytest

from gantline.audit.sinks import AuditLog
from gantline.auth.action import Action
from gantline.auth.authorizer import DefaultAuthorizer, Target
from gantline.auth.gate import Asker, Decision, Gate
from gantline.auth.principal import Principal, Role
from gantline.contract.audit import AuditEntry
from gantline.contract.errors import InvalidCredentials
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.testing.clock import FakeClock
from gantline.testing.factories import make_job

ASKER = Asker(correlation_id="c1", client="192.0.2.1")


class Notebook:
    """An audit sink that keeps everything."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


def job(**fields: Any) -> JobSnapshot:
    return JobSnapshot(
        job=make_job({"secret": "hush"}, **fields),
        status=JobStatus.QUEUED,
        version=1,
        attempt=0,
        crashes=0,
        snoozes=0,
        fence=0,
        priority=2,
    )


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


@pytest.fixture
def gate(notebook: Notebook) -> Gate:
    return Gate(DefaultAuthorizer(), notebook, clock=FakeClock())


MEMBER = Principal(id="user:1", tenant_id="a")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (job(tenant_id="a", created_by="user:1"), Decision.ALLOWED),
        (job(tenant_id="a", created_by="user:2"), Decision.FORBIDDEN),
        (job(tenant_id="b", created_by="user:1"), Decision.HIDDEN),
        (None, Decision.HIDDEN),
    ],
    ids=["own", "another's", "another tenant's", "missing"],
)
async def test_what_one_is_told_about_a_job(
    gate: Gate, notebook: Notebook, found: JobSnapshot | None, verdict: Decision
) -> None:
    job_id = found.job.job_id if found else uuid4()
    assert await gate.to_job(MEMBER, Action.CANCEL, job_id, found, asker=ASKER) is verdict
    (entry,) = notebook.entries
    assert (entry.actor, entry.actor_tenant) == ("user:1", "a")
    assert (entry.action, entry.outcome, entry.job_id) == (Action.CANCEL, verdict, job_id)
    assert (entry.correlation_id, entry.client) == ("c1", "192.0.2.1")
    assert entry.tenant_id == (found.job.tenant_id if found else "")
    assert "hush" not in repr(entry)


async def test_reading_is_written_down_only_where_it_is_refused(
    gate: Gate, notebook: Notebook
) -> None:
    own, others = job(tenant_id="a", created_by="user:1"), job(tenant_id="a")
    await gate.to_job(MEMBER, Action.READ, own.job.job_id, own)
    assert notebook.entries == []
    await gate.to_job(MEMBER, Action.READ, others.job.job_id, others)
    assert [entry.outcome for entry in notebook.entries] == [Decision.FORBIDDEN]


async def test_what_is_no_job_is_named(gate: Gate, notebook: Notebook) -> None:
    operator = Principal(
        id="key:x", tenant_id="a", roles=frozenset({Role.OPERATOR}), is_system=True
    )
    here = Target(tenant_id="a")
    what = "queue:documents"
    assert await gate.to_target(operator, Action.MANAGE_QUEUES, here, what=what) is Decision.ALLOWED
    assert await gate.to_target(MEMBER, Action.MANAGE_QUEUES, here, what=what) is Decision.FORBIDDEN
    elsewhere = Target(tenant_id="b")
    assert await gate.to_target(MEMBER, Action.STATISTICS, elsewhere) is Decision.HIDDEN
    assert [entry.what for entry in notebook.entries] == [what, what, ""]


async def test_what_cannot_be_audited_is_not_done() -> None:
    class Broken:
        async def record(self, entry: AuditEntry) -> None:
            raise OSError("the disk is full")

    gate = Gate(DefaultAuthorizer(), Broken(), clock=FakeClock())
    own = job(tenant_id="a", created_by="user:1")
    with pytest.raises(OSError, match="full"):
        await gate.to_job(MEMBER, Action.CANCEL, own.job.job_id, own)


async def test_the_default_sink_writes_one_line_of_json(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate(DefaultAuthorizer(), AuditLog(), clock=FakeClock())
    forged = Asker(correlation_id='x"\n{"actor":"admin"}', client="192.0.2.1")
    with caplog.at_level(logging.INFO, "gantline.audit"):
        await gate.record_unauthenticated("POST /api/jobs", InvalidCredentials("No."), asker=forged)
        own = job(tenant_id="a", created_by="user:1")
        await gate.to_job(MEMBER, Action.CANCEL, own.job.job_id, own, asker=forged)
    refused, done = (json.loads(record.getMessage()) for record in caplog.records)
    assert "\n" not in caplog.records[0].getMessage()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert refused["outcome"] == "unauthenticated"
    assert refused["correlationId"] == done["correlationId"] == forged.correlation_id
    assert done["jobId"] == str(own.job.job_id)
