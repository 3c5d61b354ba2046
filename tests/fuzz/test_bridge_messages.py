"""Bridge messages: each becomes a job or is Rejected; any other error brings it back for ever."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline import Gantline
from gantline.bridge.intake import Intake
from gantline.bridge.message import MOST_BYTES, Message, Rejected, encode_envelope
from gantline.contract.query import JobFilter
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_bounds, in_time
from tests.fuzz.mutation import (
    TEXTS,
    mutated_bytes,
    mutated_json,
    mutated_text,
    seeded,
    with_each_edge,
    written,
)
from tests.fuzz.test_envelopes import ENVELOPE, LARGE, WHOLE

KNOWN: Final = {"jobType": "ai-indexing", "tenantId": "default"}
ENVELOPES: Final[tuple[dict[str, Any], ...]] = (
    *(ENVELOPE | KNOWN, WHOLE | KNOWN, {"jobType": "ai-indexing", "payload": {"a": 1}}, {}),
)
PROPERTIES: Final = ("JobType", "Attempt", "CreatedAt")
VALUES: Final[tuple[Any, ...]] = (
    *TEXTS,
    *("ai-indexing", "1", "2025-12-12T00:00:00Z", "253402300800", "0001-01-01T00:00:00+23:00"),
    *(0, 1, 3, -1, 2**31, 2**63, 2**64, 253402300800, True, False),
)


def message(random: Random) -> Message:
    """A message that came from anywhere: any body, and any properties that a broker can carry."""
    envelope = random.choice(ENVELOPES)
    match random.randrange(4):
        case 0:
            body = mutated_bytes(random, written(envelope))
        case 1:
            body = written(envelope)
        case _:
            body = mutated_json(random, envelope)
    names = random.sample(PROPERTIES, random.choice((0, 0, 1, 2, 3)))
    return Message(
        body=body,
        message_id=random.choice(("", str(random.random()), _text(random))),
        correlation_id=random.choice(("", "c-1", _text(random))),
        subject=random.choice(("", "", "indexing", _text(random))),
        content_type=random.choice(("application/json", "", _text(random))),
        properties={name: random.choice(VALUES) for name in names},
        is_readable=random.random() < 0.98,
    )


def _text(random: Random) -> str:
    return mutated_text(random, "ai-indexing")


@pytest.fixture
def intake(runner: asyncio.Runner) -> Iterator[Intake]:
    jobs = Gantline("memory://")

    @jobs.job("ai-indexing", queue="ai", priority=1, aliases=("indexing",))
    async def index(payload: dict[str, Any]) -> None: ...

    runner.run(jobs.open())
    yield Intake(jobs, tenant="default")
    runner.run(jobs.close())


def take(runner: asyncio.Runner, intake: Intake, sent: Message) -> bool:
    """Whether it became a job."""
    detail = ""
    try:
        runner.run(intake.take(sent))
    except Rejected as rejected:
        detail = rejected.detail
    assert len(detail) < 10_000
    return not detail


@given(sent=seeded(message))
@effort(800)
def test_any_message_is_a_job_or_rejected(
    runner: asyncio.Runner, intake: Intake, sent: Message
) -> None:
    with in_time():
        if take(runner, intake, sent):
            before = intake.taken["accepted"]
            assert take(runner, intake, sent)
            assert intake.taken["accepted"] == before, "the same message is the same job"


@given(body=st.binary(max_size=200), message_id=st.text(st.characters()))
@effort(150)
def test_any_bytes_are_rejected(
    runner: asyncio.Runner, intake: Intake, body: bytes, message_id: str
) -> None:
    with in_time():
        take(runner, intake, Message(body=body, message_id=message_id, subject="indexing"))


@pytest.mark.parametrize("field", [*WHOLE, "unknown"])
def test_no_field_is_troubled_by_an_edge_of_json(
    runner: asyncio.Runner, intake: Intake, field: str
) -> None:
    envelope = {name: one for name, one in ENVELOPES[1].items() if name != "jobId"}
    for body in with_each_edge(envelope, field):
        with in_time():
            take(runner, intake, Message(body=body, message_id=str(uuid4())))


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("value", range(len(VALUES)))
def test_no_property_is_trouble(
    runner: asyncio.Runner, intake: Intake, name: str, value: int
) -> None:
    body = b'{"payload": {}}' if name == "JobType" else b'{"jobType": "ai-indexing"}'
    sent = Message(body=body, message_id=str(uuid4()), properties={name: VALUES[value]})
    with in_time():
        take(runner, intake, sent)


@pytest.mark.parametrize("name", LARGE)
def test_a_large_message_takes_bounded_time_and_memory(
    runner: asyncio.Runner, intake: Intake, name: str
) -> None:
    body = LARGE[name].replace(b'"mail"', b'"ai-indexing"')
    with in_bounds(len(body)):
        take(runner, intake, Message(body=body, message_id=name))
    with in_bounds(MOST_BYTES):
        take(runner, intake, Message(body=body.ljust(MOST_BYTES + 1), message_id=name))


@given(body=seeded(lambda random: mutated_json(random, ENVELOPES[1])))
@effort(60)
def test_what_was_taken_in_is_sent_out_and_taken_in_again(
    runner: asyncio.Runner, body: bytes
) -> None:
    """Through another bridge, as it was."""
    first, second = Gantline("memory://"), Gantline("memory://")
    for jobs in (first, second):

        @jobs.job("ai-indexing")
        async def index(payload: Any) -> None: ...

    if take(runner, Intake(first, tenant="default"), Message(body=body, message_id="m")):
        job = runner.run(only(first))
        assert take(runner, Intake(second, tenant="default"), encode_envelope(job))
        found = runner.run(only(second))
        ids = {"job_id": found.job_id, "external_id": job.job_id}
        assert found == msgspec.structs.replace(job, **ids)
    for jobs in (first, second):
        runner.run(jobs.close())


async def only(jobs: Gantline) -> Any:
    (found,) = (await jobs.store.find(JobFilter(tenant_id=None), limit=10)).items
    return found.job
