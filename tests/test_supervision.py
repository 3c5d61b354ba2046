"""Supervisor and reloader: every child ends, whenever a stop comes and whatever the child does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gantline.cli.supervision import children
from gantline.cli.supervision.children import Escalation, ParentPipe
from gantline.cli.supervision.reloader import Reloader
from gantline.cli.supervision.supervisor import Supervisor
from gantline.testing.clock import FakeClock

pytestmark = pytest.mark.xdist_group("processes")

# The alarm only ends a child that nobody else ends.
CHILD = [sys.executable, "-c", "import signal; signal.alarm(30); signal.pause()"]
DRAIN = timedelta(seconds=20)
GRACE = timedelta(seconds=0.2)


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
    monkeypatch.setattr(children, "Popen", popen)
    assert Supervisor(2, CHILD, drain=DRAIN).run() == 0
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

    monkeypatch.setattr(children, "Popen", refuse_the_second)
    assert Supervisor(2, CHILD, drain=DRAIN).run() == 0
    assert popen.ends == [-signal.SIGTERM]
    assert "temporarily unavailable" in caplog.text


def test_a_stop_while_the_reloader_starts_its_child_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = StoppedAtTheStart(start=1)
    monkeypatch.setattr(children, "Popen", popen)
    assert Reloader(tmp_path, CHILD, drain=DRAIN).run() == 0
    assert popen.ends == [-signal.SIGTERM]


def test_a_stop_while_the_reloader_starts_its_child_anew_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").touch()
    popen = StoppedAtTheStart(start=2)

    def change_the_code(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        os.utime(tmp_path / "app.py", (0, len(popen.children)))
        return popen(*args, **kwargs)

    monkeypatch.setattr(children, "Popen", change_the_code)
    assert Reloader(tmp_path, CHILD, drain=DRAIN).run() == 0
    assert popen.ends == [-signal.SIGTERM, -signal.SIGTERM]


def test_the_reloader_says_what_it_waits_for_and_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").touch()
    said: list[str] = []

    def change_the_code(text: str) -> None:
        said.append(text)
        if text.startswith("Waiting"):
            os.utime(tmp_path / "app.py", (0, len(said)))

    popen = StoppedAtTheStart(start=2)
    monkeypatch.setattr(children, "Popen", popen)
    ends_at_once = [sys.executable, "-c", ""]
    Reloader(tmp_path, ends_at_once, drain=DRAIN, report=change_the_code).run()
    assert said == [
        "Waiting for a change of the code. Press Ctrl-C to stop.",
        "app.py has changed: restarting.",
    ]


def ignore_signals() -> None:
    """From its first moment on: what is ignored stays so in the program that is then run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> StoppedAtTheStart:
    """Starts a child that ignores signals."""
    popen = StoppedAtTheStart(start=1)
    monkeypatch.setattr(children, "Popen", partial(popen, preexec_fn=ignore_signals))
    return popen


def test_a_worker_that_ignores_signals_is_killed_and_named(
    deaf: StoppedAtTheStart, caplog: pytest.LogCaptureFixture
) -> None:
    code = Supervisor(1, CHILD, drain=timedelta(0), grace=GRACE).run()
    assert (code, deaf.ends) == (128 + signal.SIGKILL, [-signal.SIGKILL])
    assert f"process {deaf.children[0].pid} has not ended yet: sending SIGKILL" in caplog.text


def test_a_development_worker_that_ignores_signals_is_killed(
    tmp_path: Path, deaf: StoppedAtTheStart
) -> None:
    code = Reloader(tmp_path, CHILD, drain=timedelta(0), grace=GRACE).run()
    assert (code, deaf.ends) == (128 + signal.SIGKILL, [-signal.SIGKILL])


def test_a_stopped_worker_is_woken_to_hear_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = StoppedAtTheStart(start=1)

    def stopped(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        child = popen(*args, **kwargs)
        child.send_signal(signal.SIGSTOP)
        return child

    monkeypatch.setattr(children, "Popen", stopped)
    assert Supervisor(1, CHILD, drain=DRAIN).run() == 0
    assert popen.ends == [-signal.SIGTERM]


def test_a_place_whose_worker_ends_at_once_does_not_delay_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = [[sys.executable, "-c", "exit(1)"], [sys.executable, "-c", "exit(0)"]]
    starts = [0, 0]
    popen = StoppedAtTheStart(start=10)

    def count(command: list[str], **kwargs: Any) -> subprocess.Popen[bytes]:
        place = int(command[1])
        starts[place] += 1
        return popen(programs[place], **kwargs)

    monkeypatch.setattr(children, "Popen", count)
    Supervisor(2, ["place"], drain=DRAIN, options_of=lambda place: [str(place)]).run()
    bad, good = starts
    assert bad < good


def test_what_had_no_effect_in_time_is_followed_by_the_next_step() -> None:
    clock = FakeClock()
    escalation = Escalation(
        timedelta(seconds=20), grace=timedelta(seconds=5), monotonic=clock.monotonic
    )
    sent = []
    for second in range(60):
        if number := escalation.next_signal(asked=1 if second >= 10 else 0):
            sent.append((second, number))
        clock.advance(1)
    assert sent == [(10, signal.SIGTERM), (35, signal.SIGINT), (40, signal.SIGKILL)]


def test_each_further_signal_is_the_next_step_at_once() -> None:
    escalation = Escalation(DRAIN, monotonic=FakeClock().monotonic)
    sent = [escalation.next_signal(asked=asked) for asked in (0, 1, 1, 2, 2, 3, 3, 4)]
    first, second, third = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
    assert sent == [None, first, None, second, None, third, None, None]


def test_signals_that_came_together_are_two_steps() -> None:
    escalation = Escalation(DRAIN, monotonic=FakeClock().monotonic)
    sent = [escalation.next_signal(asked=2) for _ in range(3)]
    assert sent == [signal.SIGTERM, signal.SIGINT, None]


ORPHAN = """
import signal, subprocess, sys
from datetime import timedelta
from gantline.cli.supervision.children import stop_with_parent

signal.alarm(30)
pipe = int(sys.argv[-1])
stop_with_parent(pipe, lambda: timedelta(seconds=20))
look = f"import os; print(os.path.exists('/dev/fd/{pipe}'))"
subprocess.run([sys.executable, "-c", look], close_fds=False, check=True)
signal.pause()
"""


def test_a_child_stops_when_the_parents_end_of_the_pipe_is_gone() -> None:
    pipe = ParentPipe()
    with pipe.start([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        inherited = child.stdout.readline()
        assert child.poll() is None
        pipe.close()
        assert child.wait(20) == -signal.SIGTERM
    assert inherited == b"False\n", "programs that a child starts have the pipe too"
