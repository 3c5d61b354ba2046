"""Traces: carried from the submit to the run, and told to OpenTelemetry where it is used."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from gantline import (
    Backoff,
    Context,
    Gantline,
    InvalidInput,
    JobDefaults,
    JobFailed,
    Permanent,
    SubmitConflict,
)
from gantline.auth import Credentials, Principal
from gantline.contract.outcome import Success
from gantline.telemetry.tracing import Attribute
from gantline.testing.factories import lane_requests, register_sessions
from gantline.worker.context import StoreRunPort
from gantline.worker.deadlines import Deadlines
from gantline.worker.executor import Executor
from gantline.worker.processes import ProcessPool
from gantline.worker.threads import HandlerThreads
from tests.telemetry.recorder import Recorder
from tests.traced_jobs import current_trace, group

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CARRIER = {"traceparent": PARENT, "tracestate": "vendor=1"}

_PROVIDER = Recorder()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """The one provider that a process can have; what it recorded before is forgotten."""
    trace.set_tracer_provider(_PROVIDER)
    assert trace.get_tracer_provider() is _PROVIDER
    _PROVIDER.spans.clear()
    yield _PROVIDER
    _PROVIDER.is_broken = False


@asynccontextmanager
async def working(jobs: Gantline) -> AsyncIterator[None]:
    async with jobs, jobs.running():
        yield


def shop(**options: Any) -> Gantline:
    jobs = Gantline("memory://", include=[group], defaults=JobDefaults(**options))

    @jobs.job("tell")
    async def tell(value: int, ctx: Context) -> dict[str, str]:
        return {**ctx.trace_context, "current": current_trace()}

    @jobs.job("fail")
    async def fail(value: int) -> None:
        raise Permanent("BROKEN", "for good")

    @jobs.job("pass-on")
    async def pass_on(value: int, ctx: Context) -> str:
        ctx.follow_up(tell, 1)
        return str((await tell.submit(2)).job_id)

    return jobs


def by_name(jobs: Gantline, name: str) -> Any:
    return next(one for one in jobs.job_types if one.name == name)


async def test_a_run_is_linked_to_the_submit_that_made_its_job(recorder: Recorder) -> None:
    jobs = shop()
    async with working(jobs):
        with recorder.being_in("request") as request:
            handle = await by_name(jobs, "tell").submit(1, correlation_id="c-1", tenant="acme")
        told = await handle.result(timeout=30)
    sent, run = recorder.one("send tell"), recorder.one("process tell")
    assert (sent.kind, sent.parent) == (SpanKind.PRODUCER, request.context)
    assert told["traceparent"] == sent.traceparent, "the job carries the context it was made in"
    assert (run.kind, run.parent) == (SpanKind.CONSUMER, None), "a trace of its own"
    (link,) = run.links
    assert (link.context.trace_id, link.context.span_id) == (
        sent.context.trace_id,
        sent.context.span_id,
    )
    assert told["current"] == run.traceparent[3:-3], "what the handler does belongs to its run"
    assert sent.is_ended
    assert run.is_ended
    assert sent.attributes == {
        "messaging.system": "gantline",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "tell",
        "messaging.message.id": str(handle.job_id),
        "messaging.message.conversation_id": "c-1",
        "gantline.queue": "default",
    }
    assert run.attributes == {
        "messaging.system": "gantline",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "tell",
        "messaging.message.id": str(handle.job_id),
        "messaging.message.conversation_id": "c-1",
        "gantline.queue": "default",
        "gantline.tenant_id": "acme",
        "gantline.attempt": 1,
        "gantline.outcome": "Success",
    }
    assert run.status is None


async def test_a_run_can_be_a_child_of_the_submit(recorder: Recorder) -> None:
    jobs = shop(trace_runs="child")
    async with working(jobs):
        await (await by_name(jobs, "tell").submit(1)).result(timeout=30)
    sent, run = recorder.one("send tell"), recorder.one("process tell")
    assert run.parent is not None
    assert (run.parent.trace_id, run.parent.span_id, run.links) == (
        sent.context.trace_id,
        sent.context.span_id,
        (),
    )


async def test_tracing_can_be_off(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTLINE_TRACE_RUNS", "off")
    jobs = shop()
    async with working(jobs):
        with recorder.being_in("request"):
            handle = await by_name(jobs, "tell").submit(1)
        assert await handle.result(timeout=30) == {"current": ""}
    assert [span.name for span in recorder.spans] == ["request"]


@pytest.mark.parametrize("kind", ["on-the-loop", "in-a-thread", "in-a-process"])
async def test_the_run_is_the_current_span_wherever_the_handler_runs(
    recorder: Recorder, kind: str
) -> None:
    jobs = shop()
    async with working(jobs):
        current = await (await by_name(jobs, kind).submit(1)).result(timeout=30)
    assert current == recorder.one(f"process {kind}").traceparent[3:-3]
    assert current_trace() == "", "and of nothing else"


async def test_the_span_of_a_run_is_current_no_longer_than_the_run(recorder: Recorder) -> None:
    jobs = shop()
    async with jobs:
        await by_name(jobs, "on-the-loop").submit(1)
        requests = lane_requests("on-the-loop")
        await register_sessions(jobs.store, "w")
        (run,) = await jobs.manager.claim("w", uuid4(), requests, lease=timedelta(minutes=5))
        executor = Executor(
            jobs.registry,
            StoreRunPort(jobs.store, jobs.manager, jobs.find_type),
            threads=HandlerThreads(),
            processes=ProcessPool(),
            deadlines=(deadlines := Deadlines()),
            tracer=jobs.tracing,
        )
        active = executor.resolve(run, jobs.clock.now())
        assert active is not None
        assert isinstance(await executor.run(active), Success)
        deadlines.close()
    assert recorder.one("process on-the-loop").is_ended
    assert current_trace() == ""


async def test_a_run_that_fails_says_why(recorder: Recorder) -> None:
    jobs = shop()
    async with working(jobs):
        with pytest.raises(JobFailed):
            await (await by_name(jobs, "fail").submit(1)).result(timeout=30)
    run = recorder.one("process fail")
    assert run.attributes[Attribute.ERROR_TYPE] == "BROKEN"
    assert run.attributes[Attribute.OUTCOME] == "Failure"
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "for good")


async def test_a_submit_that_fails_says_why(recorder: Recorder) -> None:
    jobs = shop()
    async with jobs:
        await by_name(jobs, "tell").submit(1, idempotency_key="k")
        recorder.spans.clear()
        with pytest.raises(SubmitConflict):
            await by_name(jobs, "tell").submit(2, idempotency_key="k")
        with pytest.raises(InvalidInput):
            await by_name(jobs, "tell").submit("no number")
    errors = [span.attributes[Attribute.ERROR_TYPE] for span in recorder.spans]
    assert errors == ["IDEMPOTENCY_CONFLICT", "VALIDATION_ERROR"]
    assert all(span.is_ended for span in recorder.spans)


async def test_many_jobs_are_sent_in_one_span(recorder: Recorder) -> None:
    jobs = shop()
    async with jobs:
        handles = await by_name(jobs, "tell").submit_many([1, 2, 3])
        sent = recorder.one("send tell")
        assert sent.attributes[Attribute.BATCH_COUNT] == 3
        for handle in handles:
            assert (await handle.status()).job.trace_context == {"traceparent": sent.traceparent}


async def test_what_a_handler_submits_belongs_to_its_run(recorder: Recorder) -> None:
    jobs = shop()
    async with working(jobs):
        await (await by_name(jobs, "pass-on").submit(1)).result(timeout=30)
        async with asyncio.timeout(30):
            while len(_ended(recorder, "process tell")) < 2:  # noqa: ASYNC110  # in the worker
                await asyncio.sleep(0.01)
    run, sent = recorder.one("process pass-on"), recorder.one("send tell")
    assert sent.parent is not None
    assert sent.parent.span_id == run.context.span_id
    told = _ended(recorder, "process tell")
    made_in = {link.context.span_id for span in told for link in span.links}
    assert made_in == {run.context.span_id, sent.context.span_id}


def _ended(recorder: Recorder, name: str) -> list[Any]:
    return [span for span in recorder.spans if span.name == name and span.is_ended]


async def test_a_tracer_that_breaks_harms_no_job(recorder: Recorder) -> None:
    recorder.is_broken = True
    jobs = shop()
    async with working(jobs):
        handle = await by_name(jobs, "tell").submit(1)
        assert await handle.result(timeout=30) == {"current": ""}


async def test_a_context_that_is_given_is_carried_instead(recorder: Recorder) -> None:
    jobs = shop()
    async with working(jobs):
        handle = await by_name(jobs, "tell").submit(1, trace_context=CARRIER)
        told = await handle.result(timeout=30)
    assert told.items() >= CARRIER.items()
    (link,) = recorder.one("process tell").links
    assert f"{link.context.span_id:016x}" == "b7ad6b7169203331"


@pytest.mark.parametrize(
    "carrier", [{"traceparent": "nonsense"}, {"baggage": "a=1"}, {"traceparent": "x" * 5000}]
)
async def test_what_is_malformed_is_dropped_and_the_job_goes_on(carrier: dict[str, str]) -> None:
    jobs = shop(trace_runs="off")
    async with working(jobs):
        handle = await by_name(jobs, "tell").submit(1, trace_context=carrier)
        assert (await handle.status()).job.trace_context is None
        assert await handle.result(timeout=30) == {"current": ""}


def test_a_way_to_trace_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'link' or 'child' or 'off'"):
        shop(trace_runs="sideways")


def test_without_opentelemetry_the_context_is_passed_on_all_the_same(tmp_path: Path) -> None:
    """And nobody imports it: an application that does not trace pays nothing."""
    program = f"""
import asyncio, sys
sys.modules["opentelemetry"] = None
from gantline import Context, Gantline
jobs = Gantline("sqlite:///{tmp_path}/w.db")

@jobs.job("second")
async def second(value: int, ctx: Context) -> dict[str, str]:
    return dict(ctx.trace_context)

@jobs.job("first")
async def first(value: int, ctx: Context) -> dict[str, str]:
    return await (await second.submit(value)).result(timeout=20)

async def main():
    async with jobs, jobs.running():
        return await (await first.submit(1, trace_context={CARRIER!r})).result(timeout=20)

assert asyncio.run(main()) == {CARRIER!r}
assert not [name for name in sys.modules if name.startswith(("opentelemetry.", "prometheus"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_a_job_that_waits_long_still_knows_its_trace() -> None:
    jobs = shop(trace_runs="off")
    async with jobs:
        options: dict[str, Any] = {"delay": timedelta(days=1), "trace_context": CARRIER}
        handle = await by_name(jobs, "tell").submit(1, **options)
        assert (await handle.status()).job.trace_context == CARRIER


SECRETS = ("of-payload", "of-subject", "of-key", "of-result", "hunter2", "of-bearer")
TOLD = {value for name, value in vars(Attribute).items() if name.isupper()}


class ByTenant:
    """Authorization: Bearer <tenant>-of-bearer."""

    challenge = "Bearer"

    async def authenticate(self, credentials: Credentials) -> Principal:
        tenant, _, _ = (credentials.bearer or "").partition("-")
        return Principal(id=f"user:{tenant}", tenant_id=tenant)


async def submitted_over_http(jobs: Gantline, tenant: str, job_type: str) -> UUID:
    """With the trace that is everybody's, and secrets wherever one can be."""
    transport = httpx2.ASGITransport(app=jobs.api(authenticator=ByTenant()))
    body = {
        "jobType": job_type,
        "payload": "of-payload",
        "subjectId": "of-subject",
        "idempotencyKey": "of-key",
    }
    headers = {"authorization": f"Bearer {tenant}-of-bearer", "traceparent": PARENT}
    async with httpx2.AsyncClient(transport=transport, base_url="http://api") as client:
        accepted = await client.post("/api/jobs", json=body, headers=headers)
    assert accepted.status_code == 202, accepted.text
    return UUID(accepted.json()["jobId"])


def keeping_secrets(**options: Any) -> Gantline:
    jobs = Gantline("memory://", defaults=JobDefaults(**options))

    @jobs.job("well")
    async def well(text: str) -> str:
        return "of-result"

    @jobs.job("broken", retry=Backoff(attempts=1))
    async def broken(text: str) -> None:
        raise RuntimeError(f"password=hunter2 {text}")

    return jobs


async def run_over_http(jobs: Gantline, tenant: str, job_type: str) -> None:
    job_id = await submitted_over_http(jobs, tenant, job_type)
    await by_name(jobs, job_type).handle(job_id, tenant=tenant).wait(timeout=30)


async def test_spans_tell_no_payload_and_no_secret(recorder: Recorder) -> None:
    jobs = keeping_secrets()
    async with working(jobs):
        for job_type in ("well", "broken"):
            await run_over_http(jobs, "acme", job_type)
        handle = await by_name(jobs, "broken").submit("of-payload", subject="of-subject")
        await handle.wait(timeout=30)
    assert len(recorder.spans) == 4
    for span in recorder.spans:
        assert span.attributes.keys() <= TOLD
        description = span.status.description if span.status else ""
        text = f"{span.name} {span.attributes} {description}"
        assert not [secret for secret in SECRETS if secret in text], text


async def test_a_trace_that_somebody_else_sends_is_linked_and_not_joined(
    recorder: Recorder,
) -> None:
    jobs = keeping_secrets()
    async with working(jobs):
        for tenant in ("acme", "evil"):
            await run_over_http(jobs, tenant, "well")
    runs = [span for span in recorder.spans if span.name == "process well"]
    assert {span.attributes[Attribute.TENANT] for span in runs} == {"acme", "evil"}
    traces = {span.context.trace_id for span in runs}
    assert len(traces) == 2
    assert int(PARENT.split("-")[1], 16) not in traces


async def test_a_child_in_the_trace_that_somebody_sent_names_its_tenant(recorder: Recorder) -> None:
    """As the page says: whoever submits chooses that trace."""
    jobs = keeping_secrets(trace_runs="child")
    async with working(jobs):
        await run_over_http(jobs, "evil", "well")
    run = recorder.one("process well")
    assert f"{run.context.trace_id:032x}" == PARENT.split("-")[1]
    assert run.attributes[Attribute.TENANT] == "evil"
