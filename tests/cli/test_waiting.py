"""A store that does not answer: told on stderr, for a bounded time, with exit code 5."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantline.cli import talk
from tests.cli.conftest import Place
from tests.servers.postgres import PostgresServer, free_port

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(90)]

APPLICATION = 'from gantline import Gantline\njobs = Gantline()\njobs.job("tidy")(lambda: None)\n'
SECRET = "s3cr3t"  # noqa: S105  # guards nothing
COMMANDS = ["job list", "dead list", "queue list", "stats", "sessions", "db status", "db migrate"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for two seconds here."""
    monkeypatch.setattr(talk, "NOTICE_AFTER_SECONDS", 0.0)


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port where somebody listens and never says a word, as a host that hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def url(port: int, deadline: float) -> str:
    return f"postgresql://u:{SECRET}@127.0.0.1:{port}/d?deadline={deadline}"


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.usefixtures("impatient")
def test_a_command_says_what_it_waits_for_and_how_long(place: Place, words: str) -> None:
    port = free_port()
    result = place.run("--store", url(port, 0.6), *words.split())
    assert (result.exit_code, result.stdout) == (5, "")
    notice, error = result.stderr.splitlines()
    assert notice.startswith(f"Waiting for postgresql://…@127.0.0.1:{port}/d?deadline=0.6")
    assert notice.endswith("trying for 1 s more.")
    assert error.startswith("Error: PostgreSQL cannot be reached")
    assert f'"127.0.0.1", port {port}' in error
    assert "Check that it runs" in error
    assert SECRET not in result.stderr


@pytest.mark.usefixtures("impatient")
def test_the_doctor_waits_no_longer_than_others(place: Place) -> None:
    result = place.run("--store", url(free_port(), 0.6), "doctor")
    assert result.exit_code == 5
    assert result.stderr.splitlines()[1].startswith("Waiting for ")


@pytest.mark.usefixtures("impatient")
def test_a_worker_says_what_it_waits_for(place: Place) -> None:
    Path("waiting_shop.py").write_text(APPLICATION)
    words = ("--store", url(free_port(), 0.6), "worker", "waiting_shop:jobs")
    result = place.run(*words)
    assert result.exit_code == 5
    assert "Waiting for postgresql://…@127.0.0.1" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: PostgreSQL cannot be reached")


@pytest.mark.usefixtures("impatient")
def test_a_server_that_says_nothing_is_given_up_too(place: Place, deaf: int) -> None:
    result = place.run("--store", url(deaf, 0.6), "job", "list")
    assert (result.exit_code, result.stderr.count("Waiting for ")) == (5, 1)
    assert result.stderr.splitlines()[-1].startswith("Error: PostgreSQL has not answered")


def test_a_store_that_answers_is_not_waited_for(place: Place) -> None:
    place.make_store()
    assert "Waiting" not in place.run("job", "list").stderr


@pytest.mark.parametrize("words", ["job list", "worker waiting_shop:jobs"])
def test_ctrl_c_ends_the_waiting_with_130(place: Place, words: str) -> None:
    """With the true patience: the notice comes after two seconds of thirty."""
    Path("waiting_shop.py").write_text(APPLICATION)
    with place.process("--store", url(free_port(), 30), *words.split()) as program:
        program.wait_for("trying for 28 s more.")
        program.process.send_signal(signal.SIGINT)
        assert program.exit_code() == 130
        assert "Traceback" not in program.stderr
        assert "Error" not in program.stderr


def test_a_watch_says_when_the_server_goes_away(place: Place) -> None:
    server = PostgresServer()
    try:
        store = ("--store", server.url(deadline="4"))
        job_id = place.json(*store, "job", "submit", "index", "1")["jobId"]
        with place.process(*store, "job", "watch", job_id) as program:
            program.wait_for("Queued")
            server.halt()
            program.wait_for("Waiting for ")
            assert program.exit_code() == 5
            assert program.stderr.splitlines()[-1].startswith("Error: PostgreSQL cannot be reached")
    finally:
        server.stop()
