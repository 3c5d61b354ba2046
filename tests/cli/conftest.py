"""A folder with a store of its own per test, and the command line to use on it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner, Result

from gantline.cli.main import main
from gantline.contract.clock import SystemClock
from gantline.contract.outcome import ErrorInfo, Failure
from gantline.contract.store import JobStore
from gantline.manager.manager import Ending, JobManager
from gantline.manager.submitter import Submission
from gantline.stores import store_from_url
from gantline.testing.factories import lane_requests, make_job, register_sessions

PATIENCE_SECONDS = 30
_LEASE = timedelta(minutes=5)
UNCHECKED = "No application is named (--app), so the payload is not checked."
REPOSITORY = Path(__file__).parents[2]


class Program:
    """A running `gantline` process whose output can be waited for."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._text = {"stdout": "", "stderr": ""}
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._text
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        pipe = getattr(self.process, name)
        while data := os.read(pipe.fileno(), 65536):
            with self._changed:
                self._text[name] += data.decode()
                self._changed.notify_all()

    @property
    def stdout(self) -> str:
        return self._text["stdout"]

    @property
    def stderr(self) -> str:
        return self._text["stderr"]

    def wait_for(self, text: str, *, times: int = 1) -> None:
        """Wait until stderr says it."""
        with self._changed:
            said = self._changed.wait_for(
                lambda: self.stderr.count(text) >= times, PATIENCE_SECONDS
            )
        assert said, f"{text!r} was not said {times} times: {self.stderr}"

    def exit_code(self, seconds: float = PATIENCE_SECONDS) -> int:
        code = self.process.wait(seconds)
        self.read_to_the_end()
        return code

    @property
    def is_read_from(self) -> bool:
        """Whether some process, of this program or started by it, still has its output open."""
        return any(reader.is_alive() for reader in self._readers)

    def read_to_the_end(self) -> None:
        for reader in self._readers:
            reader.join(PATIENCE_SECONDS)


class Place:
    """A folder, the SQLite file in it, and the command line there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "gantline.db"

    def make_store(self) -> None:
        """Looking does not make one."""
        assert self.run("db", "migrate").exit_code == 0

    def run(self, *words: str, stdin: str | bytes | None = None) -> Result:
        """Run a command within this process."""
        return CliRunner().invoke(main, list(words), input=stdin)

    def json(self, *words: str) -> Any:
        """Run a command that must succeed; return its data."""
        result = self.run("-o", "json", *words)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def submit(self, *words: str) -> str:
        job_id: str = self.json("job", "submit", *words)["jobId"]
        return job_id

    def status(self, job_id: str) -> str:
        status: str = self.json("job", "get", job_id)["status"]
        return status

    def dead(
        self,
        job_type: str = "broken",
        *,
        tenant_id: str = "default",
        code: str = "BROKEN",
        message: str = "for good",
        detail: str = "",
        subject_id: str = "",
        key: str = "",
    ) -> str:
        """Make a dead letter."""

        async def kill(manager: JobManager) -> str:
            job = make_job(
                {"secret": "hush"},
                job_type=job_type,
                tenant_id=tenant_id,
                subject_id=subject_id,
                idempotency_key=key,
                created_at=SystemClock().now(),
            )
            await manager.submit([Submission(job)])
            await register_sessions(manager._store, "test")
            (run,) = await manager.claim("test", uuid4(), lane_requests(job_type), lease=_LEASE)
            failure = Failure(ErrorInfo(code, message, detail), retryable=False)
            await manager.settle([Ending(run, failure)])
            return str(job.job_id)

        job_id: str = self.managed(kill)
        return job_id

    def start_a_run(self, job_type: str) -> None:
        async def claim(manager: JobManager) -> None:
            await register_sessions(manager._store, "test")
            await manager.claim("test", uuid4(), lane_requests(job_type), lease=_LEASE)

        self.managed(claim)

    def managed(self, act: Callable[[JobManager], Any]) -> Any:
        return self.stored(lambda store: act(JobManager(store)))

    def stored(self, act: Callable[[JobStore], Any]) -> Any:
        """Do something to the store itself."""

        async def opened() -> Any:
            store = store_from_url(f"sqlite:///{self.database}", clock=SystemClock())
            await store.open()
            try:
                return await act(store)
            finally:
                await store.close()

        return asyncio.run(opened())

    @contextmanager
    def process(self, *words: str, stdin: int = subprocess.DEVNULL) -> Iterator[Program]:
        """Run a command in a process (group) of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gantline.cli.main", *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            # The same code as in this process, wherever that was found.
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
            start_new_session=True,
        )
        with process:
            program = Program(process)
            try:
                yield program
            finally:
                if process.poll() is None:
                    process.terminate()
                    _end(process)
                program.read_to_the_end()  # before its pipes are closed

    def eventually(self, reached: Callable[[], bool], what: str) -> None:
        """Ask again and again, for a bounded time; each question is a command of its own."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not reached():
            assert time.monotonic() < end, f"It never came about that {what}."


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the group that we started
        process.wait(20)


def is_one_line(result: Result) -> bool:
    """Whether a failure said one plain line on stderr, and nothing on stdout."""
    lines = [line for line in result.stderr.splitlines() if line != UNCHECKED]
    return (
        len(lines) == 1
        and lines[0].startswith("Error: ")
        and "Traceback" not in result.stderr
        and result.stdout == ""
        and (result.exception is None or isinstance(result.exception, SystemExit))
    )


def assert_refused(result: Result, exit_code: int, *words: str) -> None:
    """The command failed in the way that people can read."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        pytest.fail(f"a traceback reaches the user: {result.exception!r}")
    assert is_one_line(result), result.output
    assert result.exit_code == exit_code, result.stderr
    for word in words:
        assert word in result.stderr


def assert_bad_option(result: Result, option: str) -> None:
    """The command was refused before it did anything, for the value of this option."""
    assert result.exit_code == 2, result.output
    assert f"Error: Invalid value for '{option}'" in result.stderr
    assert result.stdout == ""


NOBODY = str(UUID(int=0))


@pytest.fixture
def empty_store(place: Place) -> Place:
    place.make_store()
    return place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in list(os.environ):
        if name.startswith("GANTLINE_") or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)
