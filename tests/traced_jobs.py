"""A job in a process that says which trace it is in; its module makes spans, so it imports them."""

from opentelemetry import trace

from gantline import JobGroup

group = JobGroup()


def current_trace() -> str:
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}" if context.is_valid else ""


@group.job("in-a-process", run_in="process")
def in_a_process(value: int) -> str:
    return current_trace()


@group.job("in-a-thread")
def in_a_thread(value: int) -> str:
    return current_trace()


@group.job("on-the-loop")
async def on_the_loop(value: int) -> str:
    return current_trace()
