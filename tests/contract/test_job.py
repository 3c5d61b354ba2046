"""The envelope: how it reads, what it may hold, how it writes back."""

import hashlib
import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import RFC_4122, UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantline.contract.clock import later
from gantline.contract.errors import Code, InvalidEnvelope, InvalidFormat, PayloadTooLarge
from gantline.contract.job import (
    BROKER_KEY_LIMIT,
    MAX_DELAY,
    Job,
    check_job,
    key_of_owner,
    read_job,
)
from gantline.contract.job_id import new_job_id
from gantline.contract.payload import encode_payload
from gantline.runtime import new_uuid
from gantline.testing.factories import make_job

# The JSON example of seed 001, as another system sends it.
EXAMPLE = """
{
	"jobId": "00000000-0000-0000-0000-000000000001",
	"jobType": "ai-indexing",
	"subjectId": "00000000-0000-0000-0000-000000000002",
	"correlationId": "00000000-0000-0000-0000-000000000003",
	"idempotencyKey": "doc-00000000-0000-0000-0000-000000000002-v5",
	"attempt": 1,
	"maxAttempts": 3,
	"payload": {
		"action": "index"
	},
	"createdAt": "2025-12-12T00:00:00+00:00"
}
"""
NAME_LIMITS = {
    "job_type": 128,
    "tenant_id": 128,
    "queue": 128,
    "subject_id": 512,
    "correlation_id": 256,
    "idempotency_key": 512,
    "created_by": 256,
    "group": 256,
}
POINTERS = {
    "job_type": "#/jobType",
    "tenant_id": "#/tenantId",
    "queue": "#/queue",
    "subject_id": "#/subjectId",
    "correlation_id": "#/correlationId",
    "idempotency_key": "#/idempotencyKey",
    "created_by": "#/createdBy",
    "group": "#/group",
}

# Other work on the machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def names(limit: int, *, least: int = 0) -> st.SearchStrategy[str]:
    alphabet = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])
    return st.text(alphabet, min_size=least, max_size=limit)


def instants() -> st.SearchStrategy[datetime]:
    return st.datetimes(timezones=st.just(UTC))


def json_values() -> st.SearchStrategy[Any]:
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text()
    )
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
    )


@st.composite
def valid_jobs(draw: st.DrawFn) -> Job:
    max_attempts = draw(st.integers(1, 1000))
    created_at = draw(instants())
    latest = later(created_at, MAX_DELAY).replace(tzinfo=None)
    return Job(
        job_id=draw(st.uuids()),
        job_type=draw(names(128, least=1)),
        subject_id=draw(names(512)),
        correlation_id=draw(names(256)),
        idempotency_key=draw(names(512)),
        attempt=draw(st.integers(1, max_attempts)),
        max_attempts=max_attempts,
        payload=msgspec.Raw(encode_payload(draw(json_values())).body),
        created_at=created_at,
        tenant_id=draw(names(128, least=1)),
        queue=draw(names(128, least=1).filter(lambda name: not name.startswith("gantline."))),
        priority=draw(st.integers(0, 3)),
        scheduled_at=draw(st.none() | st.datetimes(max_value=latest, timezones=st.just(UTC))),
        payload_version=draw(st.integers(1, 2**31 - 1)),
        created_by=draw(names(256)),
        parent_job_id=draw(st.none() | st.uuids()),
        trace_context=draw(st.none() | st.dictionaries(names(20), names(20), max_size=3)),
        group=draw(names(256)),
    )


def problems_of(job: Job) -> dict[str, str]:
    with pytest.raises(InvalidEnvelope) as raised:
        check_job(job)
    assert raised.value.code == Code.VALIDATION_ERROR
    return dict(raised.value.problems)


# -- reading and writing ----------------------------------------------------------------------


def test_the_example_of_the_contract_reads() -> None:
    job = read_job(EXAMPLE)
    assert job.job_id == UUID(int=1)
    assert job.job_type == "ai-indexing"
    assert job.subject_id == str(UUID(int=2))
    assert job.correlation_id == str(UUID(int=3))
    assert job.idempotency_key == f"doc-{UUID(int=2)}-v5"
    assert (job.attempt, job.max_attempts, job.attempts_used) == (1, 3, 0)
    assert job.created_at == datetime(2025, 12, 12, tzinfo=UTC)
    assert job.data() == {"action": "index"}
    assert check_job(job) == {"action": "index"}


def test_the_example_of_the_contract_writes_back_key_for_key() -> None:
    sent = json.loads(EXAMPLE)
    written = json.loads(read_job(EXAMPLE).to_json())
    assert list(written) == list(sent)
    instant = datetime.fromisoformat(written.pop("createdAt"))
    assert instant == datetime.fromisoformat(sent.pop("createdAt"))
    assert instant.tzinfo is not None
    assert written == sent


@pytest.mark.parametrize(
    ("field", "value", "written"),
    [
        ("tenant_id", "acme", ("tenantId", "acme")),
        ("queue", "documents", ("queue", "documents")),
        ("priority", 0, ("priority", 0)),
        ("scheduled_at", datetime(2030, 1, 1, tzinfo=UTC), ("scheduledAt", "2030-01-01T00:00:00Z")),
        ("payload_version", 2, ("payloadVersion", 2)),
        ("created_by", "me", ("createdBy", "me")),
        ("parent_job_id", UUID(int=9), ("parentJobId", str(UUID(int=9)))),
        ("trace_context", {"traceparent": "x"}, ("traceContext", {"traceparent": "x"})),
        ("group", "account-7", ("group", "account-7")),
    ],
)
def test_a_field_of_ours_is_written_only_when_it_was_set(
    field: str, value: object, written: tuple[str, object]
) -> None:
    job = msgspec.structs.replace(read_job(EXAMPLE), **{field: value})
    shared = json.loads(EXAMPLE)
    added = [pair for pair in json.loads(job.to_json()).items() if pair[0] not in shared]
    assert added == [written]


def test_the_shared_fields_are_written_even_when_they_were_not_set() -> None:
    assert set(json.loads(Job(job_type="a").to_json())) == set(json.loads(EXAMPLE))


@unhurried
@given(valid_jobs())
def test_every_valid_job_passes_the_check_and_round_trips(job: Job) -> None:
    assert check_job(job) == job.data()
    assert read_job(job.to_json()) == job
    assert read_job(job.to_json().decode()) == job


# -- the tolerant reader ------------------------------------------------------------------------


def read_with(**fields: object) -> Job:
    return read_job(json.dumps({"jobType": "a"} | fields))


def test_unknown_keys_are_skipped() -> None:
    assert read_with(surprise={"deep": [1]}, subjectId="s").subject_id == "s"


def test_only_the_type_is_mandatory() -> None:
    before = datetime.now(UTC)
    job = read_job('{"jobType": "a"}')
    assert (job.subject_id, job.correlation_id, job.idempotency_key) == ("", "", "")
    assert (job.attempt, job.max_attempts, job.priority, job.payload_version) == (1, 3, 2, 1)
    assert (job.tenant_id, job.queue, job.created_by) == ("default", "default", "")
    assert job.group == ""
    assert (job.scheduled_at, job.parent_job_id, job.trace_context) == (None, None, None)
    assert job.data() is None
    assert before <= job.created_at <= datetime.now(UTC)
    assert job.job_id.version == 7
    assert read_job('{"jobType": "a"}').job_id != job.job_id


@pytest.mark.parametrize(
    "key",
    [
        "jobId", "subjectId", "correlationId", "idempotencyKey", "attempt", "maxAttempts",
        "createdAt", "tenantId", "queue", "priority", "scheduledAt", "payloadVersion",
        "createdBy", "parentJobId", "traceContext", "group",
    ],
)  # fmt: skip
def test_null_means_not_given(key: str) -> None:
    field = "".join(f"_{c.lower()}" if c.isupper() else c for c in key)
    given = getattr(read_with(**{key: None}), field)
    absent = getattr(read_with(), field)
    assert type(given) is type(absent)
    assert given == absent or key in {"jobId", "createdAt"}


def test_a_payload_may_be_null_in_earnest() -> None:
    assert read_with(payload=None).data() is None


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2025-12-12T08:30:00", datetime(2025, 12, 12, 8, 30, tzinfo=UTC)),
        ("2025-12-12T08:30:00Z", datetime(2025, 12, 12, 8, 30, tzinfo=UTC)),
        ("2025-12-12T08:30:00+02:00", datetime(2025, 12, 12, 6, 30, tzinfo=UTC)),
        ("2025-12-12T08:30:00-05:30", datetime(2025, 12, 12, 14, 0, tzinfo=UTC)),
        ("2025-12-12T08:30:00.123456Z", datetime(2025, 12, 12, 8, 30, 0, 123456, tzinfo=UTC)),
    ],
)
def test_instants_of_any_zone_are_read_as_utc(text: str, instant: datetime) -> None:
    job = read_with(createdAt=text, scheduledAt=text)
    for read in (job.created_at, job.scheduled_at):
        assert read == instant
        assert read is not None
        assert read.tzinfo is UTC


@pytest.mark.parametrize(
    "instant",
    [
        "0001-01-01T00:00:00+02:00",
        "9999-12-31T23:59:59-02:00",
        253402300800,
        253402300799.9999999,
        "253402300800",
        -62135596801,
    ],
)
@pytest.mark.parametrize("key", ["createdAt", "scheduledAt"])
def test_an_instant_that_utc_cannot_hold_is_a_wrong_format(key: str, instant: Any) -> None:
    with pytest.raises(InvalidFormat):
        read_with(**{key: instant})


def test_numbers_may_come_as_strings() -> None:
    job = read_with(attempt="2", maxAttempts="5", priority="1", payloadVersion="7")
    assert (job.attempt, job.max_attempts, job.priority, job.payload_version) == (2, 5, 1, 7)
    assert job.attempts_used == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "42", '"job"', "{", "not json", "{}",
        '{"jobType": null}', '{"jobType": 5}',
        '{"jobType": "a", "jobId": "zzz"}',
        '{"jobType": "a", "attempt": "many"}',
        '{"jobType": "a", "createdAt": "yesterday"}',
        '{"jobType": "a", "createdAt": 1e30}',
        '{"jobType": "a", "traceContext": [1]}',
        '{"jobType": "\\ud800"}',
        '{"jobType": "\ud800"}',
        b'{"jobType": "\xff"}',
        b"\xff\xfe",
        '{"jobType": "a", "payload": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)  # fmt: skip
def test_what_is_no_envelope_is_a_wrong_format(text: str | bytes) -> None:
    with pytest.raises(InvalidFormat) as raised:
        read_job(text)
    assert raised.value.code == Code.INVALID_FORMAT
    assert raised.value.next_step


@unhurried
@given(st.binary() | st.text() | json_values().map(msgspec.json.encode))
def test_reading_raises_nothing_but_a_wrong_format(text: bytes | str) -> None:
    with suppress(InvalidFormat):
        assert isinstance(read_job(text), Job)


@unhurried
@given(st.dictionaries(st.sampled_from(sorted(json.loads(EXAMPLE))), json_values()))
def test_wrong_values_in_known_keys_raise_nothing_but_a_wrong_format(fields: Any) -> None:
    with suppress(InvalidFormat):
        assert isinstance(read_job(msgspec.json.encode({"jobType": "a"} | fields)), Job)


# -- the rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["job_type", "tenant_id", "queue"])
def test_a_name_that_routes_must_not_be_empty(field: str) -> None:
    job = msgspec.structs.replace(make_job(), **{field: ""})
    assert problems_of(job) == {POINTERS[field]: "is empty"}


@pytest.mark.parametrize(
    "field", ["subject_id", "correlation_id", "idempotency_key", "created_by", "group"]
)
def test_other_names_may_be_empty(field: str) -> None:
    check_job(make_job(**{field: ""}))


@pytest.mark.parametrize(("field", "limit"), NAME_LIMITS.items())
def test_a_name_may_be_as_long_as_its_limit_and_no_longer(field: str, limit: int) -> None:
    check_job(msgspec.structs.replace(make_job(), **{field: "ü" * limit}))
    longer = msgspec.structs.replace(make_job(), **{field: "ü" * (limit + 1)})
    assert problems_of(longer) == {POINTERS[field]: f"is longer than {limit} characters"}


@pytest.mark.parametrize("field", NAME_LIMITS)
@pytest.mark.parametrize("character", ["\x00", "\n", "\x1f", "\x7f", "\x85", "\u2028", "\ud800"])
def test_a_name_holds_no_control_character_and_no_lone_surrogate(
    field: str, character: str
) -> None:
    job = msgspec.structs.replace(make_job(), **{field: f"a{character}b"})
    assert problems_of(job) == {POINTERS[field]: "contains a control character or a lone surrogate"}


@pytest.mark.parametrize(
    ("fields", "pointer", "bounds"),
    [
        ({"priority": -1}, "#/priority", "from 0 to 3"),
        ({"priority": 4}, "#/priority", "from 0 to 3"),
        ({"max_attempts": 0}, "#/maxAttempts", "from 1 to 1000"),
        ({"max_attempts": 1001}, "#/maxAttempts", "from 1 to 1000"),
        ({"attempt": 0}, "#/attempt", "from 1 to 3"),
        ({"attempt": 4}, "#/attempt", "from 1 to 3"),
        ({"attempt": 2, "max_attempts": 1}, "#/attempt", "from 1 to 1"),
        ({"payload_version": 0}, "#/payloadVersion", "from 1 to 2147483647"),
        ({"payload_version": 2**31}, "#/payloadVersion", "from 1 to 2147483647"),
    ],
)
def test_a_number_stays_within_its_bounds(
    fields: dict[str, Any], pointer: str, bounds: str
) -> None:
    (found,) = problems_of(make_job(**fields)).items()
    assert found[0] == pointer
    assert found[1].endswith(bounds)


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 0},
        {"priority": 3},
        {"max_attempts": 1},
        {"max_attempts": 1000, "attempt": 1000},
        {"attempt": 3},
        {"payload_version": 2**31 - 1},
    ],
)
def test_the_bounds_themselves_are_allowed(fields: dict[str, Any]) -> None:
    check_job(make_job(**fields))


@pytest.mark.parametrize("queue", ["webhooks", "gantline.outbox", "gantline."])
def test_a_queue_of_our_own_is_for_our_own_jobs(queue: str) -> None:
    assert problems_of(Job(job_type="a", queue=queue)).keys() == {"#/queue"}
    for other in ("webhooks2", "Webhooks", "gantline", "my.gantline.x"):
        check_job(Job(job_type="a", queue=other))


def test_a_job_is_put_off_for_as_long_as_a_delay_may_be() -> None:
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    check_job(Job(job_type="a", created_at=created_at, scheduled_at=created_at + MAX_DELAY))
    late = created_at + MAX_DELAY + timedelta(microseconds=1)
    job = Job(job_type="a", created_at=created_at, scheduled_at=late)
    assert problems_of(job) == {"#/scheduledAt": "is more than 3650 days after createdAt"}


def test_the_trace_context_has_a_limit_in_bytes() -> None:
    frame = len('{"a":""}')
    check_job(make_job(trace_context={"a": "x" * (1024 - frame)}))
    larger = make_job(trace_context={"a": "x" * (1025 - frame)})
    assert problems_of(larger) == {"#/traceContext": "is larger than 1024 bytes"}


@pytest.mark.parametrize("context", [{"a": "\ud800"}, {"\ud800": "a"}])
def test_the_trace_context_holds_no_lone_surrogate(context: dict[str, str]) -> None:
    assert "#/traceContext" in problems_of(make_job(trace_context=context))


def test_every_problem_is_named_at_once() -> None:
    job = make_job(job_type="", tenant_id="a\n", priority=9, trace_context={"a": "x" * 2000})
    assert list(problems_of(job)) == ["#/jobType", "#/tenantId", "#/priority", "#/traceContext"]


def test_the_text_of_an_invalid_envelope_names_each_place() -> None:
    with pytest.raises(InvalidEnvelope, match=r"#/queue: is empty; #/priority: is 4"):
        check_job(make_job(queue="", priority=4))


def test_the_payload_is_held_to_its_own_rules() -> None:
    with pytest.raises(PayloadTooLarge):
        check_job(make_job("x" * 100), payload_limit=100)
    assert check_job(make_job("x" * 98), payload_limit=100) == "x" * 98


# -- identity -----------------------------------------------------------------------------------


def test_the_broker_message_id_is_the_idempotency_key() -> None:
    assert make_job(idempotency_key="doc-7-v5").broker_message_id == "doc-7-v5"


def test_the_broker_message_id_without_a_key_is_the_job_id() -> None:
    assert make_job(job_id=UUID(int=7)).broker_message_id == str(UUID(int=7))


def test_a_key_too_long_for_a_broker_is_hashed() -> None:
    longest = "k" * BROKER_KEY_LIMIT
    assert BROKER_KEY_LIMIT == 128
    assert make_job(idempotency_key=longest).broker_message_id == longest
    hashed = make_job(idempotency_key=longest + "ü").broker_message_id
    assert hashed == hashlib.sha256((longest + "ü").encode()).hexdigest()
    assert len(hashed) <= BROKER_KEY_LIMIT


def test_a_job_id_is_a_uuid_of_version_7() -> None:
    for _ in range(100):
        job_id = new_job_id()
        assert (job_id.version, job_id.variant) == (7, RFC_4122)


def test_a_job_id_tells_when_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    millis = new_job_id().int >> 80
    assert before <= millis <= time.time_ns() // 1_000_000


def test_job_ids_sort_by_the_time_they_were_made() -> None:
    ids = [new_job_id() for _ in range(5000)]
    times = [job_id.int >> 64 for job_id in ids]
    assert times == sorted(times)
    assert len(set(ids)) == len(ids)


def test_job_ids_of_one_millisecond_still_sort() -> None:
    ids = [new_job_id() for _ in range(1000)]
    millis = {job_id.int >> 80 for job_id in ids}
    assert len({job_id.int >> 64 for job_id in ids}) > 10 * len(millis)


def test_a_run_token_is_random_throughout() -> None:
    tokens = [new_uuid() for _ in range(1000)]
    assert len(set(tokens)) == 1000
    assert {token.version for token in tokens} == {4}


def test_an_instant_keeps_its_microseconds_through_another_zone() -> None:
    east = datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=timezone(timedelta(hours=14)))
    job = read_job(make_job(created_at=east).to_json())
    assert job.created_at == east


@given(st.lists(st.tuples(st.text("a/%2F5"), st.text("a/%2F5", min_size=1)), max_size=20))
def test_no_two_owners_can_have_the_same_key(pairs: list[tuple[str, str]]) -> None:
    assert len({key_of_owner(*pair) for pair in pairs}) == len(set(pairs))


def test_the_key_of_an_owner_shows_him_and_no_key_stays_none() -> None:
    assert key_of_owner("user:7", "doc-1") == "user:7/doc-1"
    assert {key_of_owner("a/b", "c"), key_of_owner("a", "b/c")} == {"a%2Fb/c", "a/b/c"}
    assert key_of_owner("user:7", "") == ""
