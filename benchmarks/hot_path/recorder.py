"""Records one operation: which functions of a package it calls, in all threads, in order."""

import sys
import threading
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

# A comprehension is no function that a reader goes to; from Python 3.12 on most are none at all.
_NO_FUNCTIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


class Step(NamedTuple):
    """A function that was called, and its file inside the package."""

    function: str
    file: str


class Recorder:
    """Notes calls in the thread that installs it, and in those that start afterwards.

    A coroutine is noted once, when it is first seen to run; not each time that it goes on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"
        self._is_on = False
        # Frames compare by identity. They are kept, so that no later one takes it over.
        self._seen: dict[FrameType, Step] = {}

    def install(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def start(self) -> None:
        self._seen = {}
        self._is_on = True

    def stop(self) -> list[Step]:
        self._is_on = False
        steps = list(self._seen.values())
        self._seen = {}
        return steps

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not self._is_on:
            return
        code = frame.f_code
        is_ours = code.co_filename.startswith(self._folder) and code.co_name not in _NO_FUNCTIONS
        if is_ours and frame not in self._seen:
            file = code.co_filename.removeprefix(self._folder)
            self._seen[frame] = Step(code.co_qualname, file)


def files_of(steps: Sequence[Step]) -> int:
    return len({step.file for step in steps})


def returns_of(steps: Sequence[Step]) -> int:
    """How often the path comes back to a file that it had left: a reader turns back so often."""
    visits = [file for file, _ in groupby(step.file for step in steps)]
    return len(visits) - len(set(visits))
