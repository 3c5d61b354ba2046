"""Logs: one event a line, whatever is in it; every line of a run says which; never a payload."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline import Gantline, InvalidInput, JobFailed, WorkerSettings
from gantline.telemetry.logs import JsonFormatter, TextFormatter, configure_logs
from tests.logging_jobs import PAYLOAD_SECRET, group, log

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACE = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}


def record(message: str, *args: Any, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("shop", logging.INFO, "shop.py", 1, message, args, None)
    vars(made).update(extra)
    return made


def event(line: str) -> dict[str, Any]:
    assert line.isascii()
    assert line.isprintable()
    found: dict[str, Any] = json.loads(line, parse_constant=pytest.fail)
    return found


# -- the format ----------------------------------------------------------------------------------


def test_a_line_says_when_how_grave_who_and_what() -> None:
    made = record("adding %d", 7)
    made.created = 1_767_225_600.25
    assert event(JsonFormatter().format(made)) == {
        "time": "2026-01-01T00:00:00.250000Z",
        "level": "INFO",
        "logger": "shop",
        "message": "adding 7",
    }


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines",
        "a\rb",
        "\x00\x1b[31mred",
        "\x7f",
        "\x9b31m",
        "\u2028\u2029\x85",
        "\ud800",
        "é 😀",
    ],
    ids=ascii,
)
def test_whatever_is_logged_is_one_line_of_plain_text(text: str) -> None:
    line = JsonFormatter().format(record("%s", text, extra_text=text))
    assert event(line)["message"] == text
    assert event(line)["extra"] == {"extra_text": text}


@given(st.text() | st.text(st.characters(categories=["Cc", "Zl", "Zp", "Cf"])))
def test_no_text_breaks_a_line(text: str) -> None:
    assert event(JsonFormatter().format(record("%s", text)))["message"] == text


def test_a_stack_trace_stays_within_its_line() -> None:
    try:
        raise ValueError("no\nway")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    found = event(JsonFormatter().format(made))
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: no\nway")


def test_what_callers_add_is_kept_where_it_is_plain() -> None:
    made = record("x", order="o-1", count=3, ratio=float("nan"), none=None, thing=object())
    extra = {"order": "o-1", "count": 3, "ratio": "nan", "none": None}
    assert event(JsonFormatter().format(made))["extra"] == extra


def test_arguments_that_do_not_fit_are_no_reason_to_lose_the_line() -> None:
    found = event(JsonFormatter().format(record("%d apples", "many")))
    assert found["message"] == "%d apples (its arguments do not fit)"


def test_control_characters_do_not_reach_the_terminal_of_who_reads_text() -> None:
    made = record("a\x1b[31mb\x9bc\td\ne\rf\u2028g")
    assert TextFormatter("%(message)s").format(made) == "a\\x1b[31mb\\x9bc\td\ne\\rf\\u2028g"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidInput, match="text, json"):
        configure_logs("xml", "INFO")


# -- the lines of a run --------------------------------------------------------------------------


class Lines(logging.Handler):
    """Collects what is logged, as JSON lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event(line) for line in self.lines]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with collected() as found:
        yield found


@contextmanager
def collected() -> Iterator[Lines]:
    root, lines = logging.getLogger(), Lines()
    before = root.level
    root.addHandler(lines)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(lines)
    root.setLevel(before)


@pytest.mark.parametrize("kind", ["on-the-loop", "in-a-thread", "in-a-process", "by-its-context"])
async def test_every_line_of_a_run_says_which_run_it_is_of(lines: Lines, kind: str) -> None:
    jobs = Gantline("memory://", include=[group])
    job_type = next(one for one in jobs.job_types if one.name == kind)
    async with jobs, jobs.running(WorkerSettings(queues={"default": 2})):
        handle = await job_type.submit(
            PAYLOAD_SECRET, tenant="acme", correlation_id="c-1", trace_context=TRACE
        )
        with pytest.raises(JobFailed):
            await handle.result(timeout=30)
    found = [one for one in lines.events if one["logger"] in (log.name, "gantline.worker")]
    assert [one["message"] for one in found[:-1]] == ["it begins", "it goes on", "it ends"]
    assert found[-1]["message"].startswith(f"{kind} {handle.job_id} failed")
    assert found[-1]["extra"]["error_code"] == "BROKEN"
    assert found[-1]["extra"]["event"] == "failed"
    for one in found:
        labels = {
            "correlationId": "c-1",
            "tenantId": "acme",
            "jobId": str(handle.job_id),
            "jobType": kind,
            "attempt": 1,
            "traceId": TRACE_ID,
        }
        assert one.items() >= labels.items(), one
    assert found[2]["level"] == "ERROR"
    assert "ZeroDivisionError" in found[2]["exception"]
    assert found[1].get("extra") == {"step": 2}
    assert PAYLOAD_SECRET not in "\n".join(lines.lines)


async def test_runs_beside_each_other_are_told_apart(lines: Lines) -> None:
    jobs = Gantline("memory://")
    both = asyncio.Barrier(2)

    @jobs.job("meet")
    async def meet(number: int) -> None:
        await both.wait()
        await asyncio.create_task(say(number))
        await asyncio.to_thread(log.info, "thread %d", number)

    async def say(number: int) -> None:
        log.info("task %d", number)

    async with jobs, jobs.running():
        handles = await meet.submit_many([0, 1])
        for handle in handles:
            await handle.result(timeout=30)
    found = {one["message"]: one["jobId"] for one in lines.events if one["logger"] == log.name}
    for number, handle in enumerate(handles):
        assert found[f"task {number}"] == found[f"thread {number}"] == str(handle.job_id)


def test_what_is_logged_outside_of_a_run_has_no_labels(lines: Lines) -> None:
    log.info("alone")
    assert lines.events[-1].keys() == {"time", "level", "logger", "message"}


def test_the_log_of_a_process_is_json_to_its_very_end() -> None:
    """Warnings, errors of threads and the error that ends it included."""
    program = """
import logging, threading, warnings
from gantline.telemetry.logs import configure_logs
configure_logs("json", "INFO")
logging.getLogger("x").info("a\\nb")
warnings.warn("beware")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise RuntimeError("the end")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    events = [event(line) for line in done.stderr.splitlines()]
    assert [one["level"] for one in events] == ["INFO", "WARNING", "ERROR", "CRITICAL"]
    assert "beware" in events[1]["message"]
    assert "ZeroDivisionError" in events[2]["exception"]
    assert "RuntimeError: the end" in events[3]["exception"]
