"""Troubles of processes: their limits, their clocks, their signals, and their code."""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Final

import msgspec

from gantline.proving.child import ChildSettings
from gantline.proving.faults import OUT_OF_MEMORY
from gantline.proving.fleet import Fleet, Slot, child_command
from tests.chaos.trouble import Switched, Trouble
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

_PAGE: Final = resource.getpagesize()
_MOST_BYTES: Final = 120 * 2**20
_MORE_BYTES: Final = 160 * 2**20
_SHORT_SECONDS: Final = (0.1, 1.0)
_LONG_SECONDS: Final = (3.5, 5.0)
# Python sleeps until a time of the monotonic clock, which libfaketime takes for one of its own.
_SLEEP: Final = """import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
"""


class NoDescriptors(Switched):
    """A process can open no file and no connection beside those that it has."""

    name = "descriptors exhausted"
    stops_all = False

    def begin(self, fleet: Fleet) -> None:
        for pid in fleet.pids:
            with suppress(ProcessLookupError, FileNotFoundError):  # it was just ending
                _limit_descriptors(pid, len(os.listdir(f"/proc/{pid}/fd")))

    def end(self, fleet: Fleet) -> None:
        for pid in fleet.pids:
            with suppress(ProcessLookupError):
                _limit_descriptors(pid, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _limit_descriptors(pid: int, most: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))


class NoMemory(Trouble):
    """Handlers take all they get: of one worker the kernel refuses it, another is killed for it.

    Killed as the kernel would: there is no group with a limit of its own to be had everywhere.
    """

    name = OUT_OF_MEMORY
    eating = 0.2

    async def make(self, fleet: Fleet) -> None:
        killed: set[int] = set()
        limited: set[int] = set()
        while True:
            await asyncio.sleep(0.02)
            for number, slot in enumerate(fleet.workers):
                with suppress(ProcessLookupError, FileNotFoundError):
                    if number % 2:
                        self._limit(slot, limited, fleet)
                    else:
                        self._kill(slot, killed)

    def _kill(self, slot: Slot, killed: set[int]) -> None:
        pid = slot.pid
        if pid is not None and pid not in killed and _memory(pid)[1] > _MOST_BYTES:
            killed.add(pid)
            slot.send(signal.SIGKILL, fault=self.name)

    def _limit(self, slot: Slot, limited: set[int], fleet: Fleet) -> None:
        """From where it is on, since so much of the rest is mapped and never used."""
        pid = slot.pid
        if pid is None or pid in limited:
            return
        mapped, used = _memory(pid)
        if used > _MOST_BYTES // 2:
            limited.add(pid)
            most = mapped + _MORE_BYTES
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
            fleet.log.add("memory refused", slot.process_name)


def _memory(pid: int) -> tuple[int, int]:
    """How many bytes a process has mapped, and how many of them are in memory."""
    mapped, used, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    return mapped * _PAGE, used * _PAGE


def _path_with(folder: Path) -> str:
    """Where Python looks for modules: in this folder first."""
    return os.pathsep.join((str(folder), *(path or os.getcwd() for path in sys.path)))


# -- clocks -------------------------------------------------------------------------------------


def fake_clock() -> Path | None:
    """The library that makes a process believe in another time."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class WrongClocks(Trouble):
    """Clocks that are minutes ahead or behind, and jump."""

    name = "clock jump"
    _OFFSETS = (-600, -180, -45, -5, 0, 5, 45, 180, 600)

    def __init__(self, folder: Path, library: Path, *, one_host: bool) -> None:
        """With `one_host` all processes have the same clock, and it is right in the end.

        Ahead it is never then: what was submitted there would be due much later.
        """
        super().__init__()
        self._folder = folder
        self._library = library
        self._one_host = one_host
        self._files: dict[str, Path] = {}
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SLEEP)

    def variables(self, process: str) -> Mapping[str, str]:
        place = "host" if self._one_host else process.rpartition("-")[0]
        if place not in self._files:
            self._files[place] = self._folder / place
            self._set(place, 0 if self._one_host else self.chance.choice(self._OFFSETS))
        return {
            "LD_PRELOAD": str(self._library),
            "PYTHONPATH": _path_with(self._folder),
            "FAKETIME_TIMESTAMP_FILE": str(self._files[place]),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def _set(self, place: str, offset: int) -> None:
        made = self._folder / "next"
        made.write_text(f"{offset:+d}s\n")
        made.replace(self._files[place])

    async def make(self, fleet: Fleet) -> None:
        try:
            while True:
                await asyncio.sleep(self.chance.uniform(1, 4))
                place = self.chance.choice(list(self._files))
                offset = self.chance.choice(self._OFFSETS)
                self._set(place, min(0, offset) if self._one_host else offset)
                fleet.log.add(self.name, place, abs(offset))
        finally:
            if self._one_host:
                self._set("host", 0)


# -- signals ------------------------------------------------------------------------------------


class TermStorm(Trouble):
    """Everybody is told to end several times a second, by two signals at once."""

    name = "SIGTERM"

    async def make(self, fleet: Fleet) -> None:
        while True:
            await asyncio.sleep(4)
            for _ in range(12):
                for slot in fleet.slots:
                    if slot.pid is not None:
                        slot.send(signal.SIGTERM, fault=self.name)
                        slot.send(signal.SIGTERM, fault=self.name)
                await asyncio.sleep(0.2)


class StoppedInEveryOrder(Trouble):
    """Workers, supervisors, clients and the server stand still, and go on in another order."""

    name = "SIGSTOP of all"

    def __init__(self, server: PostgresServer | RedisServer | None) -> None:
        super().__init__()
        self._server = server
        groups = ["workers", "supervisors", "clients"] + ["server"] * (server is not None)
        self._orders = list(permutations(groups))
        self.chance.shuffle(self._orders)

    def command(self, settings: ChildSettings) -> Sequence[str]:
        if settings.role == "client":
            return child_command(settings)
        said = msgspec.json.encode(settings).decode()
        return (sys.executable, "-m", "tests.chaos.supervised", said)

    async def make(self, fleet: Fleet) -> None:
        while True:
            for number, order in enumerate(self._orders):
                await asyncio.sleep(self.chance.uniform(0.1, 0.5))
                seconds = self.chance.uniform(*(_SHORT_SECONDS if number % 8 else _LONG_SECONDS))
                back = self.chance.choice(self._orders)
                fleet.log.add(self.name, " ".join((*order, "|", *back)), seconds)
                fleet.health.hinder_all(self.name)
                try:
                    await self._signal_all(fleet, order, signal.SIGSTOP)
                    await asyncio.sleep(seconds)
                    await self._signal_all(fleet, back, signal.SIGCONT)
                finally:
                    for group in order:
                        self._signal(fleet, group, signal.SIGCONT)
                    fleet.health.free_all(self.name)
                if number % 4 == 3:
                    self._kill_one(fleet)

    async def _signal_all(self, fleet: Fleet, order: Sequence[str], number: signal.Signals) -> None:
        for group in order:
            self._signal(fleet, group, number)
            await asyncio.sleep(self.chance.uniform(0, 0.1))

    def _signal(self, fleet: Fleet, group: str, number: signal.Signals) -> None:
        if group == "server":
            assert self._server is not None
            (self._server.pause if number is signal.SIGSTOP else self._server.resume)()
            return
        slots = [slot for slot in fleet.slots if (slot.role == "client") == (group == "clients")]
        pids = [slot.pid for slot in slots if slot.pid is not None]
        if group == "workers":
            pids = [child for pid in pids for child in _children(pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _kill_one(self, fleet: Fleet) -> None:
        slot = self.chance.choice(fleet.workers)
        for child in _children(slot.pid or 0)[:1]:
            with suppress(ProcessLookupError):
                fleet.log.add("kill", f"{slot.process_name}-{child}")
                os.kill(child, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except (FileNotFoundError, ProcessLookupError):  # it was just ending
        return []


# -- code ---------------------------------------------------------------------------------------


class Deploys(Trouble):
    """Every ten seconds all processes are replaced by those of the other version, one by one.

    Clients some seconds after the workers, so that each version runs what the other submits.
    """

    name = "deploy"

    def __init__(self, older: Path) -> None:
        """`older`: where the modules of the other version are."""
        super().__init__()
        self._older = older
        self._runs_older: dict[str, bool] = {}
        self.started = {"older": 0, "newer": 0}

    def variables(self, process: str) -> Mapping[str, str]:
        if not self._runs_older.get(process.partition("-")[0], False):
            self.started["newer"] += 1
            return {}
        self.started["older"] += 1
        return {"PYTHONPATH": _path_with(self._older)}

    async def make(self, fleet: Fleet) -> None:
        older = False
        while True:
            older = not older
            for role, pause in (("worker", 6), ("client", 2)):
                self._runs_older[role] = older
                for slot in fleet.slots:
                    if slot.role == role and slot.pid is not None:
                        slot.send(signal.SIGTERM, fault=self.name)
                        await asyncio.sleep(0.3)
                await asyncio.sleep(pause)
