"""Supervisor and reloader: no child is left behind, whenever the signal to stop comes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.worker import reloader, supervisor
from windlass.worker.reloader import Reloader
from windlass.worker.supervisor import Supervisor

pytestmark = pytest.mark.xdist_group("processes")

# The alarm only ends a child that nobody else ends.
CHILD = [sys.executable, "-c", "import signal; signal.alarm(30); signal.pause()"]


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class StoppedAtTheStart:
    """Starts children, and is told to stop at the worst moment: when one runs and is not known."""

    def __init__(self, *, start: int) -> None:
        self._left = start
        self.children: list[subprocess.Popen[bytes]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(*args, **kwargs)
        self.children.append(child)
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return child

    @property
    def ends(self) -> list[int | None]:
        return [child.poll() for child in self.children]


def test_a_stop_while_a_worker_is_started_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = StoppedAtTheStart(start=2)
    monkeypatch.setattr(supervisor, "Popen", popen)
    assert Supervisor(2, CHILD).run() == 0
    assert popen.ends == [-signal.SIGTERM, -signal.SIGTERM]


def test_a_worker_that_cannot_be_started_does_not_orphan_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    popen = StoppedAtTheStart(start=1)
    asked = 0

    def refuse_the_second(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise BlockingIOError("Resource temporarily unavailable")
        return popen(*args, **kwargs)

    monkeypatch.setattr(supervisor, "Popen", refuse_the_second)
    assert Supervisor(2, CHILD).run() == 0
    assert popen.ends == [-signal.SIGTERM]
    assert "temporarily unavailable" in caplog.text


def test_a_stop_while_the_reloader_starts_its_child_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = StoppedAtTheStart(start=1)
    monkeypatch.setattr(reloader, "Popen", popen)
    assert Reloader(tmp_path, CHILD).run() == 0
    assert popen.ends == [-signal.SIGTERM]


def test_a_stop_while_the_reloader_starts_its_child_anew_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").touch()
    popen = StoppedAtTheStart(start=2)

    def change_the_code(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        os.utime(tmp_path / "app.py", (0, len(popen.children)))
        return popen(*args, **kwargs)

    monkeypatch.setattr(reloader, "Popen", change_the_code)
    assert Reloader(tmp_path, CHILD).run() == 0
    assert popen.ends == [-signal.SIGTERM, -signal.SIGTERM]
