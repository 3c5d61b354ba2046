"""gantline store: moving all jobs to another store."""

import signal
import time
from uuid import uuid4

import pytest

from tests.cli.conftest import Place, assert_refused
from tests.servers.postgres import PostgresServer

OLD, NEW = "sqlite:///gantline.db", "sqlite:///new.db"
SECRET = "s3cr3t"  # noqa: S105  # guards nothing


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grace is for other processes."""
    from gantline.moving import closing

    monkeypatch.setattr(closing, "GRACE", closing.GRACE / 1000)


def test_jobs_go_on_in_the_new_store(place: Place) -> None:
    job_id, dead = place.submit("mail", '"a"'), place.dead()
    copied = place.json("store", "copy", OLD, NEW)
    assert {name: copied[name] for name in ("jobs", "keys", "takenAway")} == {
        "jobs": 2,
        "keys": 0,
        "takenAway": 0,
    }
    assert place.json("--store", NEW, "job", "get", job_id)["status"] == "Queued"
    assert place.json("--store", NEW, "job", "get", dead)["status"] == "Failed"
    assert place.run("--store", NEW, "job", "submit", "mail", '"b"').exit_code == 0


def test_it_says_what_it_does_and_where_to_go_on(place: Place) -> None:
    place.submit("mail", '"a"')
    result = place.run("store", "copy", OLD, NEW)
    assert result.exit_code == 0
    for said in ("Closing the source", "Copying jobs: 1 of 1", "Comparing jobs of the target: 1"):
        assert said in result.stderr
    assert f"{place.folder / 'gantline.db'} stays closed" in result.stderr
    assert result.stdout.split()[:2] == ["jobs", "1"]


def test_a_store_whose_jobs_were_moved_refuses_to_change_and_can_be_opened(place: Place) -> None:
    job_id = place.submit("mail", '"a"')
    assert place.run("store", "copy", OLD, NEW).exit_code == 0
    for words in (("job", "submit", "mail", '"b"'), ("job", "cancel", job_id)):
        assert_refused(place.run(*words), 1, "jobs were moved to another one", "gantline doctor")
    assert place.status(job_id) == "Queued"  # reading is as ever
    assert_refused(place.run("store", "reopen"), 2, "Confirm with --yes")
    opened = place.run("store", "reopen", "--yes")
    assert "It was closed by cli:" in opened.stderr
    assert str(place.folder / "new.db") in opened.stderr
    assert "was open" in place.run("store", "reopen", "--yes").stderr
    assert place.run("job", "cancel", job_id).exit_code == 0


def test_doctor_tells_where_the_jobs_went(place: Place) -> None:
    place.submit("mail", '"a"')
    assert place.run("store", "copy", OLD, NEW).exit_code == 0
    told = place.run("doctor")
    assert f"Its jobs were moved to {place.folder / 'new.db'}" in told.output
    assert "were moved" not in place.run("--store", NEW, "doctor").output


def test_a_target_that_holds_something_is_refused_unless_told(place: Place) -> None:
    place.submit("mail", '"a"')
    assert place.run("--store", NEW, "db", "migrate").exit_code == 0
    foreign = place.json("--store", NEW, "job", "submit", "mail", '"x"')["jobId"]
    assert_last(place.run("store", "copy", OLD, NEW), 1, "holds jobs already", "--replace")
    assert_refused(place.run("store", "copy", OLD, NEW, "--replace"), 2, "Confirm with --yes")
    assert place.run("store", "copy", OLD, NEW, "--replace", "--yes").exit_code == 0
    assert place.run("--store", NEW, "job", "get", foreign).exit_code == 3


def assert_last(result: object, exit_code: int, *words: str) -> None:
    """The last line says why, behind those that say how far it came."""
    assert result.exit_code == exit_code, result.output  # type: ignore[attr-defined]  # click's
    last = result.stderr.splitlines()[-1]  # type: ignore[attr-defined]  # click's
    assert last.startswith("Error: ")
    for word in words:
        assert word in last


def test_a_running_job_is_named_or_taken_away(place: Place) -> None:
    job_id = place.submit("mail", '"a"')
    place.start_a_run("mail")
    refused = place.run("store", "copy", OLD, NEW, "--wait", "0")
    assert_last(refused, 1, f"Jobs are still running: {job_id}", "--force")
    assert place.run("job", "submit", "mail", '"b"').exit_code == 0  # it is open again
    assert place.json("store", "copy", OLD, NEW, "--wait", "0", "--force")["takenAway"] == 1
    history = place.json("--store", NEW, "job", "get", job_id)["history"]
    assert [row["reason"] for row in history] == ["TakenAway"]
    assert history[0]["actor"].startswith("cli:")


@pytest.mark.parametrize(
    ("source", "target", "code", "words"),
    [
        ("memory://", NEW, 2, "lives in one process"),
        (OLD, "memory://", 2, "lives in one process"),
        (OLD, "nonsense://", 5, "No store is known"),
        ("sqlite:///missing.db", NEW, 5, "missing.db"),
        (OLD, OLD, 1, ""),
    ],
)
def test_what_cannot_be_copied_is_said(
    source: str, target: str, code: int, words: str, empty_store: Place
) -> None:
    empty_store.submit("mail", '"a"')
    assert_last(empty_store.run("store", "copy", source, target), code, words)
    assert empty_store.run("job", "submit", "mail", '"b"').exit_code == 0


def test_no_secret_of_a_url_is_told(place: Place, postgres: PostgresServer) -> None:
    place.submit("mail", '"a"')
    url = postgres.url(schema=f"w{uuid4().hex}")
    with_secret = url.replace("://", f"://postgres:{SECRET}@", 1) if "@" not in url else url
    result = place.run("store", "copy", OLD, with_secret)
    assert SECRET not in result.output
    assert SECRET not in place.run("-o", "json", "store", "reopen", "--yes").output


def test_an_interrupted_copy_leaves_the_source_open(place: Place) -> None:
    job_id = place.submit("mail", '"a"')
    place.start_a_run("mail")
    with place.process("store", "copy", OLD, NEW) as program:
        program.wait_for(f"Waiting for running jobs: {job_id}")
        program.process.send_signal(signal.SIGINT)
        assert program.exit_code() == 130
    assert "Traceback" not in program.stderr
    assert place.run("job", "submit", "mail", '"b"').exit_code == 0


def test_a_copy_is_in_the_audit_trail_that_goes_with_the_jobs(place: Place) -> None:
    place.submit("mail", '"a"')
    assert place.run("store", "copy", OLD, NEW, "--force", "--wait", "0").exit_code == 0
    (entry,) = place.json("--store", NEW, "audit", "list")
    assert "copyStore" in entry.values()
    assert place.run("--store", NEW, "audit", "verify").exit_code == 0


def test_workers_are_reported_at_once_and_nothing_runs_meanwhile(place: Place) -> None:
    """A worker that lives through the copy claims nothing more at the source."""
    (place.folder / "idle.py").write_text(
        "from gantline import Gantline\n"
        "jobs = Gantline('sqlite:///gantline.db')\n"
        "@jobs.job('mail')\n"
        "async def mail(text: str) -> None: ...\n"
    )
    first = place.submit("mail", '"a"')
    with place.process("worker", "idle:jobs") as worker:
        place.eventually(lambda: place.status(first) == "Completed", "the worker works")
        began = time.monotonic()
        assert place.run("store", "copy", OLD, NEW).exit_code == 0
        assert time.monotonic() - began < 30
        assert place.run("store", "reopen", "--yes").exit_code == 0
        second = place.submit("mail", '"b"')
        place.eventually(lambda: place.status(second) == "Completed", "it goes on")
        assert worker.process.poll() is None
    assert place.json("--store", NEW, "job", "get", first)["status"] == "Completed"
