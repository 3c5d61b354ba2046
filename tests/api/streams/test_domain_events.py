"""Domain events on streams: by their types, before the end of their job, and never without it."""

import msgspec

from gantline import Gantline
from gantline.contract.domain_event import Emitted, encode_emitted
from gantline.contract.outcome import Success
from tests.api.conftest import Asker
from tests.api.streams.event_stream import Listener
from tests.api.streams.playing import names, new_job, numbers, run_all, sealed
from tests.api.test_submit import MAIL

SIGNED = {"passport_version_id": "v-1", "key_id": "dev-key-1"}


def success() -> Success:
    """With an event, an entry for the audit trail, and another event."""
    emitted = [
        Emitted.of("PASSPORT_SIGNED", "PassportVersion", "v-1", SIGNED, is_audit=False),
        Emitted.of("PASSPORT_SIGNED", "PassportVersion", "v-1", {"why": "x"}, is_audit=True),
        Emitted.of("passport.counted", "Counter", "all", "two\nlines", is_audit=False),
    ]
    return Success(b"1", emitted=encode_emitted(emitted))


async def test_the_stream_of_a_job_has_them_before_its_end(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    assert (await stream.hears()).name == "state"
    await run_all(jobs, success())
    heard = (await stream.ends())[-3:]
    assert names(heard) == ["PASSPORT_SIGNED", "passport.counted", "completed"]
    signed = heard[0].data
    assert (signed["eventId"], signed["eventType"]) == (f"{job_id}.3.1", "PASSPORT_SIGNED")
    assert (signed["aggregateType"], signed["aggregateId"]) == ("PassportVersion", "v-1")
    assert signed["payload"] == SIGNED
    assert (heard[1].data["eventId"], heard[1].data["payload"]) == (f"{job_id}.3.3", "two\nlines")
    assert heard[2].shown == ("completed", "Completed")


async def test_of_a_job_that_has_ended_they_are_told_with_its_end(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    await run_all(jobs, success())
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    heard = await stream.ends()
    assert names(heard) == ["state", "PASSPORT_SIGNED", "passport.counted", "completed"]


async def test_the_stream_of_a_tenant_has_them_and_no_other_tenants_stream_has(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    mine = await listen("alice", "/api/events")
    others = await listen("eve", "/api/events")
    of_mails = await listen("alice", "/api/events?jobType=mail")
    await new_job(ask)
    await run_all(jobs, success())
    await mine.hears_until("completed")
    await new_job(ask, MAIL)
    await run_all(jobs)
    await of_mails.hears_until("completed")
    assert b"PASSPORT_SIGNED" in mine.body
    assert b"PASSPORT_SIGNED" not in of_mails.body
    assert b"PASSPORT_SIGNED" not in others.body


async def test_a_client_that_missed_the_row_gets_all_of_it_and_after_the_row_nothing(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    """Only the row's own event moves the Last-Event-ID, so nobody comes back in the middle."""
    stream = await listen("alice", "/api/events")
    await new_job(ask)
    await run_all(jobs, success())
    heard = await stream.hears_until("completed")
    assert await numbers(jobs, heard[-3:]) == [0, 0, 1]
    for last, missed in ((0, ["PASSPORT_SIGNED", "passport.counted", "completed"]), (1, [])):
        again = await listen("alice", "/api/events", last=await sealed(jobs, last))
        if missed:
            assert names(await again.hears_until("completed"))[-3:] == missed
        await new_job(ask, MAIL)
        await run_all(jobs)
        (*before, _) = await again.hears_until("completed")
        assert "PASSPORT_SIGNED" not in names(before)


async def test_what_is_sent_is_what_the_documentation_says(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    document = (await ask("alice", "GET", "/api/openapi.json")).json()
    schema = document["components"]["schemas"]["DomainDocument"]
    job_id = await new_job(ask)
    await run_all(jobs, success())
    stream = await listen("alice", f"/api/jobs/{job_id}/events")
    heard = await stream.ends()
    assert set(schema["required"]) == set(heard[1].data)
    assert msgspec.json.encode(heard[1].data["payload"]) == msgspec.json.encode(SIGNED)
