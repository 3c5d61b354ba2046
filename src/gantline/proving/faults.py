"""Faults: which are made when, as the seed draws them, and the log of those that were made."""

import os
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, Literal, get_args

import msgspec

from gantline.runtime import monotonic

ProcessFault = Literal["kill", "deploy", "freeze", "long freeze"]
"""SIGKILL; SIGTERM; SIGSTOP for less than a lease, or for longer."""
NetworkFault = Literal["drop", "cut answer", "cut request", "delay", "black hole"]
StoreFault = Literal["lost answer", "refused call", "late write"]
"""Lost after the store did it, or before; or written by a worker that was frozen just before, for
so long that others have its runs."""
Harm = ProcessFault | NetworkFault
"""What is done to processes from outside."""
FaultKind = Harm | StoreFault
KINDS: Final[tuple[FaultKind, ...]] = tuple(
    kind for group in (ProcessFault, NetworkFault, StoreFault) for kind in get_args(group)
)
OUT_OF_MEMORY: Final = "out of memory"
DEATHS: Final = frozenset({"kill", OUT_OF_MEMORY})
"""After these a process writes nothing more, and others have to take its runs over."""
SUFFIX: Final = ".faults"

_PROCESS_SECONDS: Final = 1.3
_NETWORK_SECONDS: Final = 0.25
_PROCESS_WEIGHTS: Final[Mapping[Harm, int]] = {
    "kill": 5,
    "deploy": 2,
    "freeze": 3,
    "long freeze": 1,
}
_NETWORK_WEIGHTS: Final[Mapping[Harm, int]] = {
    "drop": 5,
    "cut answer": 6,
    "cut request": 3,
    "delay": 4,
    "black hole": 1,
}


class Chance(Random):
    """All that is drawn from a seed; what is drawn for one name does not depend on others."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(f"{seed}/{name}")


class Step(msgspec.Struct, frozen=True):
    """A fault that is to be made."""

    at: float
    """Seconds since the faults began."""
    kind: Harm
    which: float
    """From 0 to 1: which process, and which of its connections."""
    seconds: float


class Fault(msgspec.Struct, frozen=True):
    """A fault that was made; `at` is by the monotonic clock of the host."""

    at: float
    kind: str
    """One of KINDS, or what a trouble calls its own."""
    process: str
    seconds: float = 0.0


def plan_faults(seed: int, *, lease: float, has_proxy: bool) -> Iterator[Step]:
    """Draw what goes wrong, in the order of time and without end."""
    plans = [_plan(Chance(seed, "processes"), _PROCESS_WEIGHTS, _PROCESS_SECONDS, lease)]
    if has_proxy:
        plans.append(_plan(Chance(seed, "network"), _NETWORK_WEIGHTS, _NETWORK_SECONDS, lease))
    return merge(*plans, key=lambda step: step.at)


def _plan(
    chance: Chance, weights: Mapping[Harm, int], mean_seconds: float, lease: float
) -> Iterator[Step]:
    at = 0.0
    while True:
        at += chance.expovariate(1 / mean_seconds)
        (kind,) = chance.choices(list(weights), list(weights.values()))
        yield Step(at, kind, chance.random(), _seconds(chance, kind, lease))


def _seconds(chance: Chance, kind: Harm, lease: float) -> float:
    match kind:
        case "freeze":
            return chance.uniform(0.05, 0.5 * lease)
        case "long freeze":
            return chance.uniform(1.2 * lease, 2 * lease)
        case "black hole":
            return chance.uniform(0.3 * lease, 2 * lease)
        case "delay":
            return chance.uniform(0.02, 0.5)
        case _:
            return 0.0


class FaultLog:
    """A file of this process's own; each line is there when the fault is made."""

    def __init__(self, folder: Path, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(folder / (name + SUFFIX), flags, 0o600)

    def add(self, kind: str, process: str, seconds: float = 0.0) -> None:
        fault = Fault(monotonic(), kind, process, seconds)
        os.write(self._file, msgspec.json.encode(fault) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_faults(folder: Path) -> list[Fault]:
    """Those of all processes, in the order of time."""
    decode = msgspec.json.Decoder(Fault).decode
    found = [
        decode(line)
        for file in folder.glob("*" + SUFFIX)
        for line in file.read_bytes().splitlines()
    ]
    return sorted(found, key=lambda fault: fault.at)


def count_faults(folder: Path) -> int:
    """How many there are so far, for people who wait."""
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("*" + SUFFIX))


class Health:
    """How many workers could work, from when to when; in between no job is expected to start."""

    def __init__(self) -> None:
        self._hindrances: dict[str, set[str]] = {}
        self._of_all: set[str] = set()
        self._changes: list[tuple[float, bool]] = [(monotonic(), False)]

    def hinder(self, worker: str, by: str) -> None:
        self._hindrances.setdefault(worker, set()).add(by)
        self._note()

    def free(self, worker: str, by: str) -> None:
        self._hindrances.setdefault(worker, set()).discard(by)
        self._note()

    def hinder_all(self, by: str) -> None:
        self._of_all.add(by)
        self._note()

    def free_all(self, by: str) -> None:
        self._of_all.discard(by)
        self._note()

    @property
    def is_any_healthy(self) -> bool:
        return not self._of_all and any(not by for by in self._hindrances.values())

    def _note(self) -> None:
        if self.is_any_healthy is not self._changes[-1][1]:
            self._changes.append((monotonic(), self.is_any_healthy))

    def healthy_seconds(self, since: float, until: float) -> float:
        """Of this time, for how long at least one worker could work."""
        ends = [*self._changes, (max(until, self._changes[-1][0]), False)]
        return sum(
            max(0.0, min(until, after) - max(since, at))
            for (at, is_healthy), (after, _) in pairwise(ends)
            if is_healthy
        )
