"""Logs: lines for people, or JSON with one event a line that says which run it belongs to."""

import json
import logging
import math
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, get_args

from gantline.contract.errors import InvalidInput
from gantline.telemetry.printable import printable, printable_json
from gantline.worker.context import current_job
from gantline.worker.run_log import LABELS, plain_extras

LogFormat = Literal["text", "json"]

TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"

_log = logging.getLogger("gantline")


class TextFormatter(logging.Formatter):
    """For people: what would steer a terminal is shown, not obeyed."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class JsonFormatter(logging.Formatter):
    """For machines: plain ASCII without a line break inside, whatever is logged."""

    def format(self, record: logging.LogRecord) -> str:
        extras = plain_extras(record)
        event: dict[str, Any] = {
            "time": _format_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _format_message(record),
            **_find_labels(extras),
        }
        if error := self._error(record):
            event["exception"] = error
        own = {name: _to_json_number(value) for name, value in extras.items() if name not in LABELS}
        if own:
            event["extra"] = own
        return printable_json(json.dumps(event))

    def _error(self, record: logging.LogRecord) -> str:
        parts = [record.exc_text or ""]
        if record.exc_info and not record.exc_text:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return "\n".join(filter(None, parts))


def configure_logs(log_format: str, level: str, *, text: str = TEXT) -> None:
    """Write this process's log to stderr; `text` is the pattern of lines for people."""
    if log_format not in get_args(LogFormat):
        raise InvalidInput(
            f"{log_format[:64]!r} is not a format of logs.",
            next_step=f"Use one of {', '.join(get_args(LogFormat))}.",
        )
    handler = logging.StreamHandler()
    is_json = log_format == "json"
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter(text))
    logging.basicConfig(level=level, handlers=[handler])
    threading.excepthook = _log_thread_crash
    if is_json:
        logging.captureWarnings(True)
        sys.excepthook = _log_crash


def _log_crash(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _log.critical("the process ends: %s", kind.__name__, exc_info=(kind, error, trace))


def _log_thread_crash(how: threading.ExceptHookArgs) -> None:
    if how.exc_type is SystemExit or how.exc_value is None:
        return
    name = how.thread.name if how.thread else "?"
    error = (how.exc_type, how.exc_value, how.exc_traceback)
    _log.error("the thread %s ends: %s", name, how.exc_type.__name__, exc_info=error)


def _find_labels(extras: Mapping[str, Any]) -> dict[str, Any]:
    """Take the labels of the line itself, else of the run in whose context it was logged."""
    labels: Mapping[str, Any] = extras
    if "job_id" not in extras and (running := current_job()) is not None:
        labels = running.labels
    return {_to_camel(name): labels[name] for name in LABELS if name in labels}


def _format_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg} (its arguments do not fit)"


def _format_time(created: float) -> str:
    moment = datetime.fromtimestamp(created, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _to_camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _to_json_number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
