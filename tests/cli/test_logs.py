"""gantline worker --log-format json: nothing but JSON on stderr, from all its processes."""

import json
import signal
from uuid import uuid4

import pytest

from tests.cli.conftest import Place, assert_refused

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(60)]

SHOP = """
import logging
from gantline import Gantline

jobs = Gantline()
log = logging.getLogger("shop")

@jobs.job("add")
async def add(secret: str) -> None:
    log.info("on the loop")

@jobs.job("add-in-a-process", run_in="process")
def add_in_a_process(secret: str) -> None:
    log.info("in a process")

@jobs.job("fail")
async def fail(secret: str) -> None:
    raise ValueError("no\\nway")
"""
PAYLOAD = '"hush"'


@pytest.fixture
def shop(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    name = f"shop_{uuid4().hex}"  # a module is imported once for all tests
    (place.folder / f"{name}.py").write_text(SHOP.replace("on the loop", "\\x1b[31mon the loop"))
    monkeypatch.setenv("GANTLINE_APP", f"{name}:jobs")
    return place


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("source", ["flag", "setting"])
def test_every_line_is_an_event_and_those_of_a_run_say_which(
    shop: Place, monkeypatch: pytest.MonkeyPatch, processes: str, source: str
) -> None:
    jobs = {kind: shop.submit(kind, PAYLOAD) for kind in ("add", "add-in-a-process", "fail")}
    words = ["worker", "--processes", processes, "--health", "127.0.0.1:0"]
    if source == "flag":
        words += ["--log-format", "json"]
    else:
        monkeypatch.setenv("GANTLINE_LOG_FORMAT", "json")
    with shop.process(*words) as program:
        program.wait_for('"event": "completed"', times=2)
        program.wait_for('"event": "retried"')
        program.process.send_signal(signal.SIGTERM)
        assert program.exit_code() == 0, program.stderr
    events = [json.loads(line) for line in program.stderr.splitlines()]
    by_message = {event["message"]: event for event in events}
    assert any(message.startswith("Working on") for message in by_message)
    assert any(message.startswith("Health, readiness") for message in by_message)
    assert by_message["Stopped."]["logger"] == "gantline.cli"
    assert by_message["\x1b[31mon the loop"]["jobId"] == jobs["add"]
    assert by_message["in a process"]["jobId"] == jobs["add-in-a-process"]
    ended = {event["jobId"] for event in events if event["logger"] == "gantline.worker"}
    assert ended >= set(jobs.values())
    assert "hush" not in program.stderr


def test_the_api_says_nothing_but_events_either(shop: Place) -> None:
    words = ("api", "--allow-anonymous", "--port", "0", "--log-format", "json")
    with shop.process(*words) as program:
        program.wait_for("Serving http")
        program.process.send_signal(signal.SIGTERM)
        assert program.exit_code() == 0, program.stderr
    messages = [json.loads(line)["message"] for line in program.stderr.splitlines()]
    assert messages[0].startswith("Everybody who can reach this address")
    assert messages[-1] == "Stopped."


def test_an_unknown_format_is_refused_with_the_choices(
    shop: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_LOG_FORMAT", "xml")
    assert_refused(shop.run("worker"), 2, "log_format", "text or json")


def test_text_for_people_does_not_act_on_their_terminal(shop: Place) -> None:
    shop.submit("add", PAYLOAD)
    with shop.process("worker") as program:
        program.wait_for("\\x1b[31mon the loop")
        program.wait_for("completed in")
        assert "\x1b" not in program.stderr
