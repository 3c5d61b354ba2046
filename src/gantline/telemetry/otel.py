"""OpenTelemetry: spans for submits and runs. The only importer of opentelemetry."""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gantline.contract.errors import Code
from gantline.contract.outcome import Failure, Outcome
from gantline.contract.submission import NewJob
from gantline.contract.version import __version__
from gantline.telemetry.tracing import PROCESS, SEND, SYSTEM, Attribute
from gantline.worker.context import Context

_log = logging.getLogger("gantline.telemetry")

_W3C: Final = TraceContextTextMapPropagator()


def is_set_up() -> bool:
    """Whether a tracer provider is configured."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def current_carrier() -> dict[str, str]:
    """The current span as W3C headers; empty where there is none."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier


class SendSpan:
    """The `send` span of a submit, current until its end: jobs of that time carry its context."""

    def __init__(self, job_type: str) -> None:
        self._span = _tracer().start_span(
            f"{SEND} {job_type}", kind=SpanKind.PRODUCER, attributes=_attributes(SEND, job_type)
        )
        self._token = contexts.attach(trace.set_span_in_context(self._span))

    def describe(self, jobs: Sequence[NewJob]) -> None:
        """Say which jobs it is about."""
        if len(jobs) == 1:
            job = jobs[0].job
            self._span.set_attribute(Attribute.MESSAGE_ID, str(job.job_id))
            self._span.set_attribute(Attribute.CONVERSATION_ID, job.correlation_id)
            self._span.set_attribute(Attribute.QUEUE, job.queue)
        else:
            self._span.set_attribute(Attribute.BATCH_COUNT, len(jobs))

    def end(self) -> None:
        """End the span, in a `finally`: the exception being raised is why the submit failed."""
        contexts.detach(self._token)
        error = sys.exc_info()[1]
        if error is not None:
            _fail(self._span, getattr(error, "code", type(error).__qualname__))
        self._span.end()


class ProcessSpan:
    """The `process` span of one run; current from its begin to its end."""

    def __init__(self, running: Context, *, as_child: bool) -> None:
        job = running.job
        created_in = _W3C.extract(running.trace_context)
        creator = trace.get_current_span(created_in).get_span_context()
        links = [Link(creator)] if creator.is_valid and not as_child else []
        self._span = _tracer().start_span(
            f"{PROCESS} {job.job_type}",
            context=created_in if as_child else contexts.Context(),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(PROCESS, job.job_type)
            | {
                Attribute.MESSAGE_ID: str(job.job_id),
                Attribute.CONVERSATION_ID: job.correlation_id,
                Attribute.QUEUE: job.queue,
                Attribute.TENANT: job.tenant_id,
                Attribute.ATTEMPT: running.attempt,
            },
            links=links,
        )
        self._token = contexts.attach(trace.set_span_in_context(self._span))

    @property
    def carrier(self) -> Mapping[str, str]:
        return current_carrier()

    def end(self, outcome: Outcome | None) -> None:
        """End the span; an error in doing so does not affect the run."""
        contexts.detach(self._token)
        try:
            self._end(outcome)
        except Exception:
            _log.exception("a span could not be ended")

    def _end(self, outcome: Outcome | None) -> None:
        kind = "Lost" if outcome is None else type(outcome).__name__
        self._span.set_attribute(Attribute.OUTCOME, kind)
        if outcome is None:
            _fail(self._span, Code.LEASE_EXPIRED)
        elif isinstance(outcome, Failure):
            _fail(self._span, outcome.error.code, outcome.error.message)
        self._span.end()


def _fail(span: Span, code: str, message: str | None = None) -> None:
    span.set_attribute(Attribute.ERROR_TYPE, str(code))
    span.set_status(Status(StatusCode.ERROR, message))


def _tracer() -> trace.Tracer:
    return trace.get_tracer(SYSTEM, __version__)


def _attributes(operation: str, job_type: str) -> dict[str, str | int]:
    return {
        Attribute.SYSTEM: SYSTEM,
        Attribute.OPERATION_NAME: operation,
        Attribute.OPERATION_TYPE: operation,
        Attribute.DESTINATION: job_type,
    }
