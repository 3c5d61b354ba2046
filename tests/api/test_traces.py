"""A trace is a hint of who submits: it opens nothing of another tenant, and is shown to few."""

from typing import Any, Final

import httpx2
import pytest

from gantline.testing.clock import FakeClock
from tests.api.application import ByName, make_jobs
from tests.api.conftest import Asker, asker_of
from tests.api.playing import run_all
from tests.api.streams.event_stream import listening_to
from tests.api.streams.playing import HASTY
from tests.api.test_submit import DOCUMENT, submit

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"
STORY: Final = "story-1"
PARTS: Final = ("", "/status", "/history", "/attempts")


async def sent(ask: Asker, who: str, state: str) -> str:
    """A job of the same trace and the same correlation id, whoever sends it."""
    headers = {"traceparent": PARENT, "tracestate": f"vendor={state}", "x-correlation-id": STORY}
    job_id: str = (await submit(ask, DOCUMENT, who, **headers)).json()["jobId"]
    return job_id


async def seen_by(ask: Asker, listen: Any, who: str, own: str) -> list[str]:
    """All that somebody is told, of whatever he asks for."""
    paths = (
        *(f"/api/jobs/{own}{part}" for part in PARTS),
        *("/api/jobs", f"/api/jobs?correlationId={STORY}", "/api/audit", "/api/stats"),
    )
    texts = [(await ask(who, "GET", path)).text for path in paths]
    stream = await listen(who, f"/api/jobs/{own}/events", last="0")
    await stream.ends()
    return [*texts, stream.body.decode()]


async def test_who_sends_the_trace_of_another_tenant_is_told_nothing_of_it(store_url: str) -> None:
    async with make_jobs(store_url, FakeClock()) as jobs:
        api = jobs.api(authenticator=ByName(), settings=HASTY)
        async with asker_of(api) as ask, listening_to(api) as listen:
            theirs, own = await sent(ask, "alice", "of-acme"), await sent(ask, "eve", "of-evil")
            await run_all(jobs)
            told = await seen_by(ask, listen, "eve", own)
            assert not any(theirs in text or "of-acme" in text for text in told)
            assert [len(one.json()["items"]) for one in await lists(ask, "eve")] == [1, 1]
            headers = {"traceparent": PARENT, "x-correlation-id": STORY}
            for part in PARTS:
                hidden = await ask("eve", "GET", f"/api/jobs/{theirs}{part}", headers=headers)
                assert hidden.status_code == 404
                assert TRACE not in hidden.text
                refused = await ask("bob", "GET", f"/api/jobs/{theirs}{part}")
                assert refused.status_code == 403
                assert TRACE not in refused.text
            whole = (await ask("alice", "GET", f"/api/jobs/{theirs}")).json()
            carried = {"traceparent": PARENT, "tracestate": "vendor=of-acme"}
            assert whole["traceContext"] == carried
            first, *others = await seen_by(ask, listen, "alice", theirs)
            assert TRACE in first
            assert not any(TRACE in text or "of-acme" in text for text in others)


async def lists(ask: Asker, who: str) -> list[httpx2.Response]:
    return [
        await ask(who, "GET", path) for path in ("/api/jobs", f"/api/jobs?correlationId={STORY}")
    ]


@pytest.mark.parametrize(
    "carrier",
    [
        {"traceparent": PARENT.upper()},
        {"traceparent": PARENT.replace(TRACE, "0" * 32)},
        {"traceparent": f"{PARENT}-more"},
        {"traceparent": f"{PARENT}\n"},
        {"traceparent": "<script>", "tracestate": "a=1"},
        {"tracestate": "a=1"},
        {"authorization": "Bearer secret"},
        {"__proto__": PARENT},
    ],
)
async def test_a_body_carries_a_sound_trace_or_none(ask: Asker, carrier: dict[str, str]) -> None:
    job_id = (await submit(ask, {**DOCUMENT, "traceContext": carrier})).json()["jobId"]
    assert (await ask("alice", "GET", f"/api/jobs/{job_id}")).json()["traceContext"] is None


async def test_nothing_but_the_trace_is_kept_of_a_carrier(ask: Asker) -> None:
    carrier = {"traceparent": PARENT, "baggage": "token=secret", "cookie": "session=secret"}
    job_id = (await submit(ask, {**DOCUMENT, "traceContext": carrier})).json()["jobId"]
    kept = (await ask("alice", "GET", f"/api/jobs/{job_id}")).json()["traceContext"]
    assert kept == {"traceparent": PARENT}
