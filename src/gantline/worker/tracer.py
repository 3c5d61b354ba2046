"""The tracer port: a span around every run, from whoever knows how to make one."""

from collections.abc import Mapping
from typing import Protocol

from gantline.contract.outcome import Outcome
from gantline.worker.context import Context


class RunSpan(Protocol):
    """What was begun for one run."""

    @property
    def carrier(self) -> Mapping[str, str]:
        """Its trace context, for a handler in another process."""
        ...

    def end(self, outcome: Outcome | None) -> None:
        """In the task that began it; None where the run was lost."""
        ...


class RunTracer(Protocol):
    """Begins spans. What the handler does belongs to them until they end."""

    def begin(self, context: Context) -> RunSpan | None:
        """None where nobody traces."""
        ...
