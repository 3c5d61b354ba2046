"""What the command line prints: data to stdout as table or JSON."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gantline.api.documents import HistoryEntry, ListedJob, WhyDocument
from gantline.cli.table import Columns, table_of
from gantline.cli.talk import say, write, write_json
from gantline.contract.clock import as_utc
from gantline.telemetry.printable import printable_line

Row = Mapping[str, Any]

_PIPE_WIDTH: Final = 1_000_000


class Output:
    """Print rows in the format that was asked for."""

    def __init__(self, format_: str) -> None:
        self._format = format_

    def rows(self, rows: Sequence[Row], columns: Columns, *, empty: str) -> None:
        """Print many: as a table of these columns, or as JSON with everything.

        Where a table would have no row, say `empty` instead.
        """
        match self._format:
            case "json":
                write_json(_json([_data(row) for row in rows], indent=2))
            case "jsonl":
                for row in rows:
                    write_json(_json(_data(row)))
            case _ if rows:
                _print_table(rows, columns)
            case _:
                say(empty)

    def line(self, row: Row, columns: Columns) -> None:
        """Print one of many as it comes: what would be a row of the table, or a line of JSON."""
        if self._format == "table":
            cells = [_cell(name, row) for name in columns.names]
            write("  ".join(filter(None, cells)))
        else:
            write_json(_json(_data(row)))

    def one(self, row: Row, *, labels: Mapping[str, str] | None = None) -> None:
        """Print one thing: as lines of name and value, or as JSON.

        `labels` are names for people, in place of those in JSON.
        """
        if self._format == "table":
            shown = {
                (labels or {}).get(name, name): value
                for name, value in row.items()
                if value not in (None, "") and name not in _FOR_TABLES_ONLY
            }
            width = max(map(len, shown), default=0)
            for name, value in shown.items():
                write(f"{name:<{width}}  {printable_line(_text(value))}")
        else:
            write_json(_json(_data(row), indent=2 if self._format == "json" else None))

    def text_or_one(self, text: str, row: Row) -> None:
        """Print a text for people, or as JSON the data that it is made of."""
        if self._format == "table":
            write(text)
        else:
            self.one(row)

    def one_with(self, row: Row, name: str, rows: Sequence[Row], columns: Columns) -> None:
        """Print one thing and a list that belongs to it."""
        if self._format != "table":
            self.one({**row, name: [_data(one) for one in rows]})
            return
        self.one(row)
        if rows:
            write(f"\n{name}")
            _print_table(rows, columns)
            for detail in filter(None, (one.get("errorDetail") for one in rows[-1:])):
                write(f"\n{detail.rstrip()}")


def why_text(why: WhyDocument) -> str:
    """Reasons for people: each with its sentence, and what to do."""
    lines = [*_paragraph(f"{why.job_id}  {why.state}  {why.job_type} in {why.queue}", "")]
    for number, one in enumerate(why.reasons, start=1):
        lines += ["", f"{number}. {one.code}", *_paragraph(one.detail, "   ")]
        for step in one.next_steps:
            lines += _paragraph(step, "   -> ")
    return "\n".join(lines)


def _paragraph(text: str, indent: str) -> list[str]:
    """Lines of at most 80 columns; a command is never broken at a hyphen."""
    return textwrap.wrap(
        printable_line(text),
        79,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


_FOR_TABLES_ONLY: Final = frozenset(
    {"attempts", "age", "why", "due", "serves", "happenedAt", "versions"}
    | {"time", "slowest", "waited p50/p95 (s)", "ran p50/p95 (s)"}
)


def _data(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _FOR_TABLES_ONLY}


def _json(value: Any, *, indent: int | None = None) -> str:
    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate: an argument or a variable that is no UTF-8
        return json.dumps(msgspec.to_builtins(value, str_keys=True), indent=indent)
    return (line if indent is None else msgspec.json.format(line, indent=indent)).decode()


def _print_table(rows: Sequence[Row], columns: Columns) -> None:
    # A pipe has no width: print every line whole.
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else _PIPE_WIDTH
    cells = [{name: _cell(name, row) for name in columns.names} for row in rows]
    table = table_of(cells, columns, width)
    header, *lines = table.lines
    write(header, bold=is_terminal and not os.environ.get("NO_COLOR"))
    for line in lines:
        write(line)
    if table.left_out:
        columns_ = "columns" if len(table.left_out) > 1 else "column"
        note = (
            f"The terminal is too narrow for the {columns_} {', '.join(table.left_out)}; "
            "-o json shows everything."
        )
        say(textwrap.fill(note, width))


def _cell(column: str, row: Row) -> str:
    text = printable_line(_text(row.get(column)))
    # To the second, which is what people can use; JSON has it all.
    is_instant = column.endswith("At") or column in ("at", "nextRun")
    return text[:19].replace("T", " ") + "Z" if text and is_instant else text


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(one, str) for one in value):
            return ", ".join(value)
        case _:
            return _json(value)


def job_row(job: ListedJob, now: datetime) -> dict[str, Any]:
    """A job as people look at it; never its payload."""
    used = 0 if job.started_at is None else job.attempt
    return {
        "jobId": str(job.job_id),
        "jobType": job.job_type,
        "status": job.status.value,
        "state": job.state,
        "attempt": job.attempt,
        "maxAttempts": job.max_attempts,
        "attempts": f"{used}/{job.max_attempts}",
        "age": _age(now - job.created_at),
        "queue": job.queue,
        "priority": job.priority,
        "group": job.group or None,
        "tenantId": job.tenant_id,
        "subjectId": job.subject_id,
        "correlationId": job.correlation_id,
        "externalId": None if job.external_id is None else str(job.external_id),
        "createdAt": instant_text(job.created_at),
        "scheduledAt": instant_text(job.scheduled_at),
        "expiresAt": instant_text(job.expires_at),
        "startedAt": instant_text(job.started_at),
        "completedAt": instant_text(job.completed_at),
        "progress": job.progress,
        "phase": job.phase,
        "reason": job.reason,
        **error_fields(job.error_code, job.error_message, job.error_type),
        "version": job.version,
    }


def log_row(entry: HistoryEntry, error_detail: str | None) -> dict[str, Any]:
    """A row of the log, with the detail that only operators of the store may see."""
    return {
        "version": entry.version,
        "event": entry.event.value,
        "status": entry.status.value,
        "reason": entry.reason,
        "endedAt": instant_text(entry.at),
        "attempt": entry.attempt,
        "session": entry.session,
        "startedAt": instant_text(entry.started_at),
        **error_fields(entry.error_code, entry.error_message, entry.error_type),
        "errorDetail": error_detail,
        "emitted": entry.emitted,
        "actor": entry.actor,
    }


def error_fields(code: str | None, message: str | None, kind: str | None) -> dict[str, str | None]:
    """What went wrong, without what the exception said: that may be anybody's data."""
    what = f"{code} ({kind})" if kind else code
    return {
        "errorCode": code,
        "errorType": kind,
        "errorMessage": message,
        "why": None if code is None else f"{what}: {message}",
    }


def instant_text(value: Any) -> str | None:
    return None if value is None else as_utc(value).isoformat().replace("+00:00", "Z")


def _age(span: timedelta) -> str:
    """How long ago, short enough for a table."""
    seconds = int(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{max(0, seconds)} s"
