"""A tracer provider that remembers its spans, on the API of OpenTelemetry alone."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, TraceFlags


class RecordedSpan(NonRecordingSpan):
    """A span as it was told."""

    def __init__(self, name: str, parent: SpanContext | None, kind: SpanKind) -> None:
        trace_id = parent.trace_id if parent else random.getrandbits(128)
        sampled = TraceFlags(TraceFlags.SAMPLED)
        super().__init__(SpanContext(trace_id, random.getrandbits(64), False, sampled))
        self.name = name
        self.kind = kind
        self.parent = parent
        self.attributes: dict[str, Any] = {}
        self.links: Sequence[Link] = ()
        self.status: Any = None
        self.is_ended = False

    @property
    def context(self) -> SpanContext:
        return self.get_span_context()

    @property
    def traceparent(self) -> str:
        return f"00-{self.context.trace_id:032x}-{self.context.span_id:016x}-01"

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = status if isinstance(status, Status) else Status(status, description)

    def end(self, end_time: int | None = None) -> None:
        assert not self.is_ended
        self.is_ended = True


class Recorder(trace.TracerProvider, trace.Tracer):
    """Provider and tracer in one."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self.is_broken = False

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return self

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Any = None,
        links: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> RecordedSpan:
        if self.is_broken:
            raise RuntimeError("no spans today")
        parent = trace.get_current_span(context).get_span_context()
        span = RecordedSpan(name, parent if parent.is_valid else None, kind)
        span.attributes |= attributes or {}
        span.links = links or ()
        self.spans.append(span)
        return span

    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.being_in(name)

    @contextmanager
    def being_in(self, name: str) -> Iterator[RecordedSpan]:
        span = self.start_span(name)
        with trace.use_span(span, end_on_exit=True):
            yield span

    def one(self, name: str) -> RecordedSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found
