"""Tracing: when spans are made, and what they say; nothing where the application has no traces."""

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


class Attribute:
    """Attributes of our spans: OpenTelemetry's conventions for messaging, and a few of our own."""

    SYSTEM: Final = "messaging.system"
    OPERATION_NAME: Final = "messaging.operation.name"
    OPERATION_TYPE: Final = "messaging.operation.type"
    DESTINATION: Final = "messaging.destination.name"
    MESSAGE_ID: Final = "messaging.message.id"
    CONVERSATION_ID: Final = "messaging.message.conversation_id"
    BATCH_COUNT: Final = "messaging.batch.message_count"
    ERROR_TYPE: Final = "error.type"
    QUEUE: Final = "gantline.queue"
    TENANT: Final = "gantline.tenant_id"
    ATTEMPT: Final = "gantline.attempt"
    OUTCOME: Final = "gantline.outcome"


SYSTEM: Final = "gantline"
SEND: Final = "send"
PROCESS: Final = "process"


class Tracing:
    """Makes spans through OpenTelemetry, if the application has imported it.

    So it need not be installed, and costs nothing where it is not used.
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
        """Begin a span for a submit; None where tracing is off."""
        if not self._is_on():
            return None
        from gantline.telemetry import otel

        try:
            return otel.SendSpan(job_type)
        except Exception:
            _log.exception("a span could not be begun")
            return None

    def begin(self, context: Context) -> "ProcessSpan | None":
        """Begin a span for a run; None where tracing is off."""
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
