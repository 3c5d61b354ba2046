"""Killing mutants: each in a child of this process, which has imported everything already.

So a mutant costs no start, and cannot spoil the next one, whatever it does.
"""

import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from tests.mutants.mutant import Mutant
from tests.mutants.trying import Trial
from tests.seeded_bugs.suite import silence

# A rule that hangs is given up by itself after half a minute; this is for a loop that never waits.
_SILENT_SECONDS: Final = 45.0
_MOST_BYTES: Final = 4 * 2**30
_HANGS: Final = "it does not end"
_DIES: Final = "its process dies"
_SURVIVED: Final = "-"


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of one mutant."""

    mutant: str
    part: str
    change: str
    killed_by: str = ""
    """A test or a rule; empty where it survived."""
    equivalent: str = ""
    """Why it could not be noticed."""
    seconds: float = 0.0

    @property
    def is_killed(self) -> bool:
        return bool(self.killed_by)

    @property
    def is_settled(self) -> bool:
        return bool(self.killed_by or self.equivalent)


def kill_all(mutants: Iterable[Mutant], trial: Trial, *, processes: int) -> Iterator[Result]:
    """Try them, so many at once; in any order."""
    waiting, kills = iter(mutants), Counter[str]()
    with selectors.DefaultSelector() as selector:
        while True:
            while len(selector.get_map()) < processes and (one := next(waiting, None)):
                child = _start(one, trial, kills)
                selector.register(child.pipe, selectors.EVENT_READ, child)
            if not selector.get_map():
                return
            ready = {key.data for key, _ in selector.select(timeout=1.0)}
            for child in [cast("_Child", key.data) for key in selector.get_map().values()]:
                result = child.listen(has_spoken=child in ready)
                if result is not None:
                    selector.unregister(child.pipe)
                    child.close()
                    kills[result.killed_by] += 1
                    yield result


# -- the parent's side -----------------------------------------------------------------------------


@dataclass(eq=False)
class _Child:
    mutant: Mutant
    process: int
    pipe: int
    folder: Path
    began: float
    heard_at: float
    heard: bytes = b""

    def listen(self, *, has_spoken: bool) -> Result | None:
        """Give what became of the mutant, once that is known."""
        now = time.monotonic()
        if has_spoken:
            said = os.read(self.pipe, 65536)
            self.heard, self.heard_at = self.heard + said, now
            if said:
                return None
            _, status = os.waitpid(self.process, 0)
            verdict = _DIES if os.WIFSIGNALED(status) else self.heard.lstrip(b".").decode()
            assert verdict, f"{self.mutant.name} could not be tried"
            return self._result(verdict)
        if now - self.heard_at > _SILENT_SECONDS:
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            return self._result(_HANGS)
        return None

    def close(self) -> None:
        os.close(self.pipe)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _result(self, verdict: str) -> Result:
        is_killed = verdict != _SURVIVED
        return Result(
            mutant=self.mutant.name,
            part=self.mutant.part,
            change=self.mutant.change,
            killed_by=verdict if is_killed else "",
            equivalent="" if is_killed else self.mutant.equivalent,
            seconds=round(time.monotonic() - self.began, 1),
        )


def _start(mutant: Mutant, trial: Trial, kills: Counter[str]) -> _Child:
    reading, writing = os.pipe()
    folder = Path(tempfile.mkdtemp(prefix="gantline-mutant-"))
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _live(mutant, trial, kills, writing, folder)
    os.close(writing)
    now = time.monotonic()
    return _Child(mutant, process, reading, folder, began=now, heard_at=now)


# -- the child's side ------------------------------------------------------------------------------


def _live(mutant: Mutant, trial: Trial, kills: Counter[str], pipe: int, folder: Path) -> None:
    """Say a dot for each test or rule that it survives, then the verdict; never returns."""
    errors = os.dup(2)
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        tempfile.tempdir = str(folder)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        with silence():
            killer = trial.find_killer(mutant, kills, lambda: os.write(pipe, b"."))
        os.write(pipe, (killer or _SURVIVED).encode())
    except BaseException:  # whatever it is, the parent's code must not go on here
        os.write(errors, traceback.format_exc().encode())
    os._exit(0)
