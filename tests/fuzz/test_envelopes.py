"""The envelope reader: any bytes are an envelope or InvalidInput, and what is taken reads back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline import Gantline
from gantline.contract.clock import SystemClock
from gantline.contract.errors import InvalidInput
from gantline.contract.job import Job, check_job, read_job
from gantline.contract.job_id import new_job_id
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT, encode_payload
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from gantline.contract.submission import NewJob
from gantline.manager.submitter import Submission
from gantline.stores.memory import open_store as open_memory
from gantline.stores.sqlite import open_store as open_sqlite
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_bounds, in_time
from tests.fuzz.mutation import documents, with_each_edge

ENVELOPE: Final[dict[str, Any]] = {
    "jobId": "00000000-0000-0000-0000-000000000001",
    "jobType": "document-indexing",
    "subjectId": "document-7",
    "correlationId": "00000000-0000-0000-0000-000000000003",
    "idempotencyKey": "document-7-v5",
    "attempt": 1,
    "maxAttempts": 3,
    "payload": {"action": "index", "pages": [1, 2.5, None, True], "of": {"é": "\u2028"}},
    "createdAt": "2025-12-12T00:00:00+00:00",
}
WHOLE: Final[dict[str, Any]] = ENVELOPE | {
    "tenantId": "acme",
    "queue": "documents",
    "priority": 1,
    "scheduledAt": "2027-01-01T00:00:00.123456-05:00",
    "payloadVersion": 2,
    "createdBy": "user:alice",
    "group": "account-7",
    "parentJobId": "00000000-0000-0000-0000-000000000002",
    "traceContext": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}
CORPUS: Final = ({"jobType": "mail"}, ENVELOPE, WHOLE)


def read(content: bytes | str) -> Job | None:
    """A job that holds to the contract; None where it was refused as it should be."""
    try:
        job = read_job(content)
        check_job(job)
    except InvalidInput:
        return None
    return job


@given(documents(CORPUS))
@effort(1000)
def test_whatever_is_read_is_a_job_that_reads_back_or_invalid_input(content: bytes) -> None:
    with in_time():
        job = read(content)
        if job is not None:
            assert read_job(job.to_json()) == job


@pytest.mark.parametrize("field", WHOLE)
def test_no_field_is_troubled_by_an_edge_of_json(field: str) -> None:
    for content in with_each_edge(WHOLE, field):
        with in_time():
            job = read(content)
            assert job is None or read_job(job.to_json()) == job


@given(st.binary(max_size=200) | st.text(max_size=100))
@effort(200)
def test_bytes_and_texts_of_any_kind_are_no_trouble(content: bytes | str) -> None:
    with in_time():
        read(content)


def large_envelopes() -> Iterator[tuple[str, bytes]]:
    """Envelopes near the limit of a payload, and beyond, each bad in its own way."""
    size = DEFAULT_PAYLOAD_LIMIT
    head, tail = b'{"jobType": "mail", "payload": ', b"}"
    inside = {
        "text": b'"' + b"x" * (size - 2) + b'"',
        "escapes": b'"' + b"\\u0041" * (size // 6 - 1) + b'"',
        "numbers": b"[" + b",".join([b"1"] * (size // 2 - 1)) + b"]",
        "objects": b"[" + b",".join([b"{}"] * (size // 3 - 1)) + b"]",
        "keys": b"{" + b",".join(b'"%d":0' % n for n in range(size // 9)) + b"}",
        "same keys": b"{" + b",".join([b'"a":0'] * (size // 6 - 1)) + b"}",
        "deep": b"[" * (size // 2) + b"]" * (size // 2),
        "deep in many": b"[" + b",".join([b"[" * 60 + b"]" * 60] * (size // 121 - 1)) + b"]",
        "digits": b"9" * (size - 1),
        "fraction": b"0." + b"1" * (size - 3),
        "much too large": b"[" + b",".join([b"1"] * size * 8) + b"]",
    }
    for name, payload in inside.items():
        yield name, head + payload + tail
    yield (
        "unknown keys",
        b'{"jobType": "mail", ' + b",".join(b'"%d": null' % n for n in range(20_000)) + tail,
    )
    yield (
        "trace",
        b'{"jobType": "mail", "traceContext": {'
        + b",".join(b'"%d": "v"' % n for n in range(20_000))
        + b"}}",
    )
    yield "spaces", b" " * 2**20 + b'{"jobType": "mail"}'


LARGE: Final = dict(large_envelopes())


@pytest.mark.parametrize("name", LARGE)
def test_an_envelope_at_the_limit_takes_bounded_time_and_memory(name: str) -> None:
    content = LARGE[name]
    with in_bounds(len(content)):
        read(content)


# -- storing --------------------------------------------------------------------------------------


PREPARING: Final = Gantline("memory://")


@pytest.fixture(scope="module")
def stores(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[JobStore]]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    opened: list[JobStore] = [
        open_memory("memory://", clock=SystemClock()),
        open_sqlite(f"sqlite:///{folder}/gantline.db", clock=SystemClock()),
    ]
    for store in opened:
        runner.run(store.open())
    yield opened
    for store in opened:
        runner.run(store.close())


@given(content=documents(CORPUS))
@effort(300)
def test_an_accepted_envelope_is_read_back_equal_from_a_store(
    runner: asyncio.Runner, stores: list[JobStore], content: bytes
) -> None:
    job = read(content)
    if job is None:
        return
    job_id = new_job_id()
    job = msgspec.structs.replace(job, job_id=job_id, idempotency_key=f"{job_id}")
    new = PREPARING.manager.submitter.prepare(Submission(job))
    for store in stores:
        with in_time():
            found = runner.run(stored(store, new))
        assert found == new.job


async def stored(store: JobStore, new: NewJob) -> Job:
    (result,) = await store.insert([new])
    assert result == Applied(1)
    (found,) = await store.get([new.job.job_id], tenant_id=new.job.tenant_id)
    assert found is not None
    return found.job


# -- payloads of Python ---------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.builds(pow, st.just(10), st.sampled_from([18, 19, 20, 400, 4400]))
    | st.floats()
    | st.text(st.characters(), max_size=10)
    | st.binary(max_size=3)
    | st.sampled_from([object(), {1, 2}, 1j, UUID(int=1), Ellipsis]),
    lambda some: (
        st.lists(some, max_size=4)
        | st.dictionaries(st.text(st.characters(), max_size=5), some, max_size=4)
        | st.dictionaries(st.integers() | st.floats() | st.booleans() | st.none(), some, max_size=2)
        | some.map(lambda one: (one,))
    ),
    max_leaves=12,
)


@given(plain)
@effort(400)
def test_a_payload_of_python_is_json_that_reads_back_or_invalid_input(value: Any) -> None:
    with in_time():
        try:
            encoded = encode_payload(value)
        except InvalidInput:
            return
        read_back = read(b'{"jobType": "mail", "payload": ' + encoded.body + b"}")
        assert read_back is not None
        assert bytes(read_back.payload) == encoded.body


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize("levels", [31, 32, 33, 500, 20_000])
def test_a_payload_of_python_may_be_nested_so_deep_and_no_deeper(levels: int) -> None:
    with in_time():
        if levels <= 32:
            encode_payload(nested(levels))
            return
        with pytest.raises(InvalidInput):
            encode_payload(nested(levels))
