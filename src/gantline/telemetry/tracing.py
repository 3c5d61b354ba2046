"""Tracing: what is done about traces, and nothing at all where the application has none."""

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, get_args

from gantline.contract.errors import InvalidInput
from gantline.worker.context import Context, current_job

if TYPE_CHECKING:
    from gantline.telemetry.otel import ProcessSpan, SendSpan

TraceRuns = Literal["link", "child", "off"]
"""How a run's span relates to the submit: linked to it, in a trace of its own; a child; none."""

_log = logging.getLogger("gantline.telemetry")

_IMPORTED: Final = "opentelemetry.trace"


class Tracing:
    """Spans through OpenTelemetry, if the application uses it.

    Whoever makes spans has imported it, so nobody else pays for that, nor needs it installed.
    """

    def __init__(self, runs: str = "link") -> None:
        if runs not in get_args(TraceRuns):
            raise InvalidInput(
                f"Runs cannot be traced as {runs[:64]!r}.",
                next_step=f"Use one of {', '.join(get_args(TraceRuns))}.",
            )
        self._runs = runs

    def carrier(self) -> Mapping[str, str]:
        """The trace context that a job submitted now is to carry."""
        if self._runs != "off" and _IMPORTED in sys.modules:
            from gantline.telemetry import otel

            if carrier := otel.current_carrier():
                return carrier
        running = current_job()
        return running.trace_context if running else {}

    def send(self, job_type: str) -> "SendSpan | None":
        """Begin a span for a submit; None where nobody traces."""
        if not self._is_on():
            return None
        from gantline.telemetry import otel

        try:
            return otel.SendSpan(job_type)
        except Exception:
            _log.exception("a span could not be begun")
            return None

    def begin(self, context: Context) -> "ProcessSpan | None":
        """Begin a span for a run; None where nobody traces."""
        if not self._is_on():
            return None
        from gantline.telemetry import otel

        try:
            return otel.ProcessSpan(context, as_child=self._runs == "child")
        except Exception:
            _log.exception("a span could not be begun")  # and no reason not to run the job
            return None

    def _is_on(self) -> bool:
        if self._runs == "off" or _IMPORTED not in sys.modules:
            return False
        from gantline.telemetry import otel

        return otel.is_set_up()
