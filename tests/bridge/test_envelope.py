"""What becomes of a message: a job, the same each time it comes, or a reason why not."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from gantline import Gantline, Limit
from gantline.app.handle import Handle
from gantline.bridge.broker import Trusted, parse_bridge_url
from gantline.bridge.intake import Intake
from gantline.bridge.message import MOST_BYTES, Message, Rejected, Rejection, encode_envelope
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.job import Job, read_job
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import JobSnapshot

EXAMPLE = {
    "jobId": "00000000-0000-0000-0000-000000000001",
    "jobType": "ai-indexing",
    "subjectId": "00000000-0000-0000-0000-000000000002",
    "correlationId": "00000000-0000-0000-0000-000000000003",
    "idempotencyKey": "doc-00000000-0000-0000-0000-000000000002-v5",
    "attempt": 1,
    "maxAttempts": 3,
    "payload": {"action": "index"},
    "createdAt": "2025-12-12T00:00:00+00:00",
}


def message(fields: dict[str, Any] | bytes, **properties: Any) -> Message:
    body = fields if isinstance(fields, bytes) else msgspec.json.encode(fields)
    return Message(body=body, **properties)


def changed(**changes: Any) -> dict[str, Any]:
    """The example with other fields; None leaves one out."""
    return {key: value for key, value in (EXAMPLE | changes).items() if value is not None}


@pytest.fixture
def jobs() -> Gantline:
    app = Gantline("memory://")

    @app.job("ai-indexing", queue="ai", priority=1, aliases=("indexing",))
    async def index(payload: dict[str, Any]) -> None: ...

    return app


@pytest.fixture
def intake(jobs: Gantline) -> Intake:
    return Intake(jobs, tenant="default")


async def only(jobs: Gantline) -> JobSnapshot:
    page = await jobs.store.find(JobFilter(tenant_id=None), limit=10)
    (found,) = page.items
    return found


async def test_the_envelope_of_the_contract_becomes_that_job(
    jobs: Gantline, intake: Intake
) -> None:
    await intake.take(message(EXAMPLE))
    job = (await only(jobs)).job
    assert str(job.external_id) == EXAMPLE["jobId"]
    assert (job.subject_id, job.correlation_id) == (EXAMPLE["subjectId"], EXAMPLE["correlationId"])
    assert job.data() == {"action": "index"}


async def test_what_an_envelope_leaves_out_is_the_types_own(jobs: Gantline, intake: Intake) -> None:
    await intake.take(message(changed(maxAttempts=None)))
    job = (await only(jobs)).job
    index = jobs.find_type("ai-indexing")
    assert index is not None
    assert (job.queue, job.priority) == ("ai", 1)
    assert job.max_attempts == index.handler.policy.retry.attempts


async def test_an_envelope_that_comes_twice_is_one_job(jobs: Gantline, intake: Intake) -> None:
    for _ in range(3):
        await intake.take(message(EXAMPLE))
    await only(jobs)
    assert intake.taken == {"accepted": 1, "duplicate": 2}


@pytest.mark.parametrize(
    ("fields", "properties"),
    [
        ({"jobType": "ai-indexing"}, {"message_id": "m-1"}),
        ({"jobType": "ai-indexing", "idempotencyKey": "k-1"}, {}),
        ({}, {"message_id": "m-1", "subject": "ai-indexing"}),
        ({}, {"message_id": "m-1", "properties": {"JobType": "indexing", "Attempt": 1}}),
        ({"jobId": None, "jobType": "ai-indexing"}, {"message_id": "m-1"}),
    ],
)
async def test_without_a_job_id_the_message_tells_which_job_it_is(
    jobs: Gantline, intake: Intake, fields: dict[str, Any], properties: dict[str, Any]
) -> None:
    for _ in range(2):
        await intake.take(message(fields, **properties))
    await only(jobs)


async def test_properties_say_what_the_body_leaves_out_and_never_overrule_it(
    jobs: Gantline, intake: Intake
) -> None:
    sent = message(
        changed(correlationId=None),
        correlation_id="c-9",
        subject="something-else",
        properties={"JobType": "something-else", "Attempt": 3},
    )
    await intake.take(sent)
    job = (await only(jobs)).job
    assert (job.job_type, job.correlation_id, job.attempt) == ("ai-indexing", "c-9", 1)


async def test_a_job_sent_by_our_own_hand_reads_back(jobs: Gantline, intake: Intake) -> None:
    job = read_job(msgspec.json.encode(EXAMPLE))
    sent = encode_envelope(job)
    assert sent.message_id == EXAMPLE["idempotencyKey"]
    assert sent.properties["JobType"] == sent.subject == "ai-indexing"
    await intake.take(sent)
    found = (await only(jobs)).job
    assert found.external_id == job.job_id
    assert found.created_at == job.created_at


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"null",
        b"{",
        b"7",
        b"[" * 100_000,
        b'{"jobType": "ai-indexing"}',
        b'{"jobType": 7, "jobId": "00000000-0000-0000-0000-000000000001"}',
        b'{"jobType": "\xff", "jobId": "00000000-0000-0000-0000-000000000001"}',
        b'{"jobType": "ai-indexing", "jobId": "\xff"}',
        b'{"jobType": "ai-indexing", "idempotencyKey": "\xff", "payload": {}}',
        b'{"jobType": "ai-indexing", "idempotencyKey": "k", "payload": {"a": "\xff"}}',
        b'{"jobType": "ai-indexing", "jobId": "not one"}',
        b'{"jobType": "ai-indexing", "jobId": 7}',
        b" " * (MOST_BYTES + 1),
        msgspec.json.encode(changed(maxAttempts=0)),
        msgspec.json.encode(changed(attempt=5)),
        msgspec.json.encode(changed(attempt="x")),
        msgspec.json.encode(changed(createdAt="yesterday")),
        msgspec.json.encode(changed(subjectId="x" * 600)),
        msgspec.json.encode(changed(correlationId="a\nb")),
        msgspec.json.encode(changed(payload={"much": "x" * 70_000})),
        msgspec.json.encode(changed(tenantId="somebody-else")),
        b'{"jobType": "ai-indexing", "jobId": "00000000-0000-0000-0000-000000000001", '
        b'"payload": {"a": "\\ud800"}}',
    ],
)
async def test_what_is_no_envelope_is_rejected_and_nothing_is_stored(
    jobs: Gantline, intake: Intake, body: bytes
) -> None:
    with pytest.raises(Rejected) as caught:
        await intake.take(message(body))
    assert caught.value.reason is Rejection.INVALID_FORMAT
    assert await jobs.store.counts(tenant_id=None) == []
    assert intake.taken == {"rejected": 1}


async def test_a_message_id_that_is_no_text_is_rejected(intake: Intake) -> None:
    """What is not rejected comes again, for ever."""
    with pytest.raises(Rejected) as caught:
        await intake.take(message(changed(jobId=None), message_id="\ud800"))
    assert caught.value.reason is Rejection.INVALID_FORMAT


@pytest.mark.parametrize("name", [0, 5, True])
async def test_a_type_in_the_properties_that_is_no_text_is_rejected(
    intake: Intake, name: int
) -> None:
    """Likewise."""
    with pytest.raises(Rejected) as caught:
        await intake.take(message(changed(jobType=None), properties={"JobType": name}))
    assert caught.value.reason is Rejection.INVALID_FORMAT


@pytest.mark.parametrize("at", [253402300800, "253402300800"])
async def test_an_instant_after_the_last_year_is_rejected(intake: Intake, at: Any) -> None:
    """Likewise."""
    with pytest.raises(Rejected) as caught:
        await intake.take(message(changed(createdAt=at)))
    assert caught.value.reason is Rejection.INVALID_FORMAT


async def test_a_reason_tells_nothing_of_what_was_sent(intake: Intake) -> None:
    secret = "correct horse"  # noqa: S105  # not one
    with pytest.raises(Rejected) as caught:
        await intake.take(message(changed(payload={"a": secret}, attempt=9)))
    assert secret not in caught.value.detail


async def test_a_type_that_is_not_declared_has_no_handler(intake: Intake) -> None:
    with pytest.raises(Rejected) as caught:
        await intake.take(message(changed(jobType="unheard-of")))
    assert caught.value.reason is Rejection.NO_HANDLER


@pytest.mark.parametrize("changes", [{}, {"jobId": "00000000-0000-0000-0000-000000000009"}])
async def test_an_id_or_a_key_with_another_payload_is_a_conflict(
    jobs: Gantline, intake: Intake, changes: dict[str, Any]
) -> None:
    await intake.take(message(EXAMPLE))
    with pytest.raises(Rejected) as caught:
        await intake.take(message(changed(payload={"action": "other"}, **changes)))
    assert caught.value.reason is Rejection.CONFLICT
    await only(jobs)


@pytest.mark.parametrize(
    "fields", [EXAMPLE, changed(jobId=None), changed(externalId=str(UUID(int=5)))]
)
async def test_nobody_can_take_the_id_of_another_tenants_message_first(
    jobs: Gantline, intake: Intake, fields: dict[str, Any]
) -> None:
    """Whoever computes it submits it as his own: the message is taken in all the same."""
    index = jobs.find_type("ai-indexing")
    assert index is not None
    sent = message(fields, message_id="m-1")
    computed = (await intake._prepare(sent)).job.external_id
    for payload in ({"action": "index"}, {"action": "other"}):
        await index.submit(payload, job_id=computed, tenant=f"evil {payload['action']}")
    await intake.take(sent)
    await intake.take(sent)
    assert intake.taken == {"accepted": 1, "duplicate": 1}
    assert computed is not None
    assert (await jobs.get(computed)).job.data() == EXAMPLE["payload"]


async def test_a_bridge_that_trusts_tenants_lets_envelopes_name_theirs(jobs: Gantline) -> None:
    trusting = Intake(jobs, tenant="default", trusts={"tenantId"})
    await trusting.take(message(changed(tenantId="acme")))
    assert (await only(jobs)).job.tenant_id == "acme"


CLAIMED: dict[str, Any] = {"createdBy": "user:boss", "queue": "elsewhere", "priority": 0}
OWN: dict[str, Any] = {"createdBy": "bridge", "queue": "ai", "priority": 1}


def said_of(job: Job) -> dict[str, Any]:
    return {"createdBy": job.created_by, "queue": job.queue, "priority": job.priority}


async def test_owner_queue_and_priority_count_only_where_they_are_trusted(
    jobs: Gantline, intake: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a publisher could act in anybody's name, and go around a queue that is full."""
    await intake.take(message(changed(**CLAIMED)))
    assert said_of((await only(jobs)).job) == OWN
    for name in CLAIMED:
        assert f"messages of ai-indexing say a {name}, which does not count" in caplog.text
    caplog.clear()
    await intake.take(message(changed(**CLAIMED)))
    assert caplog.text == "", "it is said once"


@pytest.mark.parametrize("trusted", CLAIMED)
async def test_what_is_trusted_is_trusted_alone(jobs: Gantline, trusted: Trusted) -> None:
    trusting = Intake(jobs, tenant="default", trusts={trusted})
    await trusting.take(message(changed(**CLAIMED)))
    assert said_of((await only(jobs)).job) == OWN | {trusted: CLAIMED[trusted]}


async def test_what_does_not_count_need_not_be_valid(jobs: Gantline, intake: Intake) -> None:
    await intake.take(message(changed(priority="high", queue=7, createdBy=[])))
    assert said_of((await only(jobs)).job) == OWN
    trusting = Intake(jobs, tenant="default", trusts={"priority"})
    with pytest.raises(Rejected):
        await trusting.take(message(changed(priority=9)))


async def test_to_say_what_is_so_anyway_is_no_warning(
    jobs: Gantline, intake: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    await intake.take(message(changed(**OWN)))
    assert said_of((await only(jobs)).job) == OWN
    assert caplog.text == ""


async def test_keys_that_are_each_owners_own_are_the_bridges(jobs: Gantline) -> None:
    @jobs.job("owned", key_scope="owner")
    async def owned(payload: dict[str, Any]) -> None: ...

    for _ in range(2):
        await Intake(jobs, tenant="default").take(message(changed(jobType="owned")))
    assert (await only(jobs)).job.idempotency_key == f"bridge/{EXAMPLE['idempotencyKey']}"


def test_what_a_bridge_trusts_is_in_its_url() -> None:
    assert parse_bridge_url("amqp://host").trusts == frozenset()
    location = parse_bridge_url("amqp://host?trusts=createdBy,queue")
    assert location.trusts == {"createdBy", "queue"}


async def test_a_payload_that_is_not_of_its_type_is_taken_in_and_fails_there(
    jobs: Gantline, intake: Intake
) -> None:
    await intake.take(message(changed(payload=[1, 2])))
    async with jobs.running() as worker:
        await jobs_ended(jobs)
        assert worker is not None
    found = await only(jobs)
    assert found.last is not None
    assert found.last.error is not None
    assert (found.status, found.last.error.code) == ("Failed", "VALIDATION_ERROR")


async def jobs_ended(jobs: Gantline) -> None:
    job = (await only(jobs)).job
    index = jobs.find_type("ai-indexing")
    assert index is not None
    handle: Handle[Any] = Handle(
        jobs,
        job.job_id,
        job.tenant_id,
        subject_id=job.subject_id,
        duplicate=False,
        codec=index.handler.result_codec,
    )
    await handle.wait(30)


def test_a_url_names_exchanges_and_hides_its_password() -> None:
    location = parse_bridge_url(
        "amqp://me:secret@host/v?exchange=in&outcomes=&prefetch=5&heartbeat=9"
    )
    assert (location.exchange, location.outcomes, location.prefetch) == ("in", "", 5)
    assert location.url == "amqp://me:secret@host/v?heartbeat=9"
    assert "secret" not in repr(location)


@pytest.mark.parametrize(
    "url",
    [
        "http://host/",
        "amqp://",
        "amqp://host?prefetch=0",
        "amqp://host?prefetch=many",
        "amqp://host?exchange=",
        "amqp://host?trusts=payload",
        "nonsense",
    ],
)
def test_a_url_that_leads_nowhere_is_refused_at_once(url: str) -> None:
    with pytest.raises(StoreMisconfigured):
        Gantline("memory://", bridge=url)


# -- groups ---------------------------------------------------------------------------------------


def grouped_app() -> Gantline:
    app = Gantline("memory://")

    @app.job("grouped", group="{account}")
    async def grouped(account: str, to: str) -> None: ...

    @app.job("limited", limits=[Limit(running=1)])
    async def limited(account: str, to: str) -> None: ...

    @app.job("free")
    async def free(account: str, to: str) -> None: ...

    return app


@pytest.mark.parametrize(
    ("job_type", "says", "trusted", "has"),
    [
        ("grouped", {}, False, "7"),
        ("grouped", {"group": "x"}, False, "7"),
        ("grouped", {"group": "x"}, True, "x"),
        ("grouped", {}, True, "7"),
        ("limited", {"group": "x"}, False, ""),
        ("limited", {"group": "x"}, True, "x"),
        ("free", {"group": "x"}, False, "x"),
        ("free", {}, False, ""),
    ],
)
async def test_a_group_counts_where_it_gets_round_no_limit_or_is_trusted(
    job_type: str, says: dict[str, str], trusted: bool, has: str
) -> None:
    intake = Intake(grouped_app(), tenant="default", trusts=["group"] if trusted else [])
    sent = message(changed(jobType=job_type, payload={"account": "7", "to": "a"}, **says))
    assert (await intake._prepare(sent)).job.group == has


async def test_a_group_that_does_not_count_is_logged_once(caplog: Any) -> None:
    intake = Intake(grouped_app(), tenant="default")
    for _ in range(3):
        await intake._prepare(message(changed(jobType="limited", payload={}, group="x")))
    assert [text for text in caplog.messages if "group" in text] == [
        "messages of limited say a group, which does not count: the bridge is not set to trust it"
    ]


async def test_a_payload_of_which_no_group_can_be_made_is_rejected() -> None:
    intake = Intake(grouped_app(), tenant="default")
    with pytest.raises(Rejected) as rejected:
        await intake._prepare(
            message(changed(jobType="grouped", payload={"account": 7, "to": "a"}))
        )
    assert rejected.value.reason is Rejection.INVALID_FORMAT
