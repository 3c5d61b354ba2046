"""The processes of a proof: workers and clients that are started again whenever they end."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from gantline.app.settings import PREFIX
from gantline.contract.errors import GantlineError
from gantline.proving.child import FROZEN, STORE, ChildSettings, Role
from gantline.proving.faults import FaultLog, Health, NetworkFault, ProcessFault, Step
from gantline.proving.proxy import Proxy
from gantline.proving.target import Route

_AGAIN_SECONDS: Final = 0.1
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 15.0
LOG: Final = ".log"
NOT_ENDED: Final = "did not end within"


def child_command(settings: ChildSettings) -> Sequence[str]:
    """What starts a process of the fleet."""
    said = msgspec.json.encode(settings).decode()
    return (sys.executable, "-m", "gantline.proving.child", said)


def no_variables(process: str) -> Mapping[str, str]:
    return {}


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes are given."""

    route: Route
    folder: Path
    seed: int
    lease: float
    wrap: str = ""
    loses_calls: bool = True
    eating: float = 0.0
    variables: Callable[[str], Mapping[str, str]] = no_variables
    """What a process, by its name, has in its environment beside ours."""
    command: Callable[[ChildSettings], Sequence[str]] = child_command


class Slot:
    """Where one process runs, one after the other, with a proxy of its own."""

    def __init__(self, role: Role, number: int, fleet: "Fleet") -> None:
        self.role: Role = role
        self._name = f"{role}-{number}"
        self._fleet = fleet
        self._starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._is_asked_to_end = False
        self._is_ending = False
        self._harm: set[asyncio.Task[None]] = set()
        self.proxy: Proxy | None = None

    @property
    def process_name(self) -> str:
        return f"{self._name}-{self._starts}"

    @property
    def pid(self) -> int | None:
        """Of the process that runs here now."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> None:
        """Keep a process running until `end`; whatever happens, none is left."""
        settings, route = self._fleet.settings, self._fleet.settings.route
        if route.has_proxy:
            self.proxy = Proxy(route.host, route.port, self._cut)
            await self.proxy.open()
        url = route.url if self.proxy is None else route.through(self.proxy.port)
        try:
            while not self._is_ending:
                self._starts += 1
                await self._run_one(settings, url)
                await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            for task in self._harm:
                task.cancel()
            if self.proxy is not None:
                await self.proxy.close()

    async def _run_one(self, settings: FleetSettings, url: str) -> None:
        name, health = self.process_name, self._fleet.health
        child = ChildSettings(
            role=self.role,
            name=name,
            folder=str(settings.folder),
            seed=settings.seed,
            lease=settings.lease,
            parent_pipe=self._fleet.pipe,
            wrap=settings.wrap,
            loses_calls=settings.loses_calls,
            eating=settings.eating,
        )
        with (settings.folder / (name + LOG)).open("wb") as log:
            process = self._process = await asyncio.create_subprocess_exec(
                *settings.command(child),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                pass_fds=(self._fleet.pipe,),
                cwd=self._fleet.home,
                env={**_environment(url), **settings.variables(name)},
                process_group=0,  # Ctrl-C is for us alone
            )
        self._is_asked_to_end = False
        try:
            assert process.stdout is not None  # noqa: S101  # for the type checker
            if await process.stdout.readline():
                self._fleet.is_ready(self.role)
                if self.role == "worker":
                    health.free(self._name, "start")
            while line := await process.stdout.readline():
                if line.startswith(FROZEN):
                    self._later(self._thaw(float(line.removeprefix(FROZEN))))
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            if self.role == "worker":
                health.hinder(self._name, "start")
                health.free(self._name, "freeze")
        if not self._is_asked_to_end:
            self._fleet.ended_alone.append(f"{name} ended by itself with {process.returncode}")

    async def end(self) -> None:
        """Let the process finish, and start no other."""
        self._is_ending = self._is_asked_to_end = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._send(signal.SIGCONT)
        self._send(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_SECONDS)
            return
        self._fleet.ended_alone.append(f"{self.process_name} {NOT_ENDED} {_END_SECONDS:g} s")
        self._send(signal.SIGKILL)

    def harm(self, step: Step) -> None:
        """Make a fault, if there is something to harm."""
        match step.kind:
            case "kill" | "deploy" | "freeze" | "long freeze":
                if self.pid is not None:
                    self._harm_process(step.kind, step.seconds)
            case kind:
                if self.proxy is not None:
                    self._harm_network(self.proxy, kind, step)

    def _harm_process(self, kind: ProcessFault, seconds: float) -> None:
        match kind:
            case "kill":
                self.send(signal.SIGKILL, fault=kind)
            case "deploy":
                self.send(signal.SIGTERM, fault=kind)
            case "freeze" | "long freeze":
                self._log(kind, seconds)
                self._later(self._freeze(seconds))

    def _harm_network(self, proxy: Proxy, kind: NetworkFault, step: Step) -> None:
        which = step.which * 997 % 1  # not the same number that chose the process
        match kind:
            case "drop":
                if proxy.drop(which):
                    self._log(kind)
            case "cut answer":
                proxy.cut("answer", which)
            case "cut request":
                proxy.cut("request", which)
            case "delay":
                self._log(kind, step.seconds)
                self._later(proxy.hold("answer", step.seconds, drop=False))
            case "black hole":
                self._log(kind, step.seconds)
                self._later(self._cut_off(proxy, which, step.seconds))

    def send(self, number: signal.Signals, *, fault: str) -> None:
        """Send a signal that ends the process, as a fault of this name."""
        self._is_asked_to_end = True
        self._log(fault)
        self._send(number)

    async def _freeze(self, seconds: float) -> None:
        self._send(signal.SIGSTOP)
        await self._thaw(seconds)

    async def _thaw(self, seconds: float) -> None:
        """Wake a process that has stopped itself."""
        self._fleet.health.hinder(self._name, "freeze")
        try:
            await asyncio.sleep(seconds)
        finally:
            self._send(signal.SIGCONT)
            self._fleet.health.free(self._name, "freeze")

    async def _cut_off(self, proxy: Proxy, which: float, seconds: float) -> None:
        self._fleet.health.hinder(self._name, "network")
        try:
            await proxy.hold("answer" if which < 0.5 else "request", seconds, drop=True)
        finally:
            self._fleet.health.free(self._name, "network")

    def _cut(self, kind: NetworkFault) -> None:
        self._log(kind)

    def _log(self, kind: str, seconds: float = 0.0) -> None:
        self._fleet.log.add(kind, self.process_name, seconds)

    def _later(self, harm: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(harm)
        self._harm.add(task)
        task.add_done_callback(self._harm.discard)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def calm(self) -> None:
        """End the faults that last."""
        for task in tuple(self._harm):
            task.cancel()
        if self._harm:
            await asyncio.wait(self._harm)
        self._send(signal.SIGCONT)  # what stopped itself just now has nobody to wake it


class Fleet:
    """All slots, and what they share."""

    def __init__(self, settings: FleetSettings, *, workers: int, clients: int) -> None:
        self.settings = settings
        self.log = FaultLog(settings.folder, "proof")
        self.health = Health()
        self.ended_alone: list[str] = []
        self.home = settings.folder / "home"
        self.home.mkdir()
        self.pipe, self._held = os.pipe()
        self._ready: dict[Role, asyncio.Event] = {
            "worker": asyncio.Event(),
            "client": asyncio.Event(),
        }
        self.slots = [
            *(Slot("worker", number, self) for number in range(1, workers + 1)),
            *(Slot("client", number, self) for number in range(1, clients + 1)),
        ]
        self._tasks: dict[asyncio.Task[None], Slot] = {}

    def is_ready(self, role: Role) -> None:
        self._ready[role].set()

    async def start(self) -> None:
        """Start all; raise GantlineError where no process can work."""
        self._tasks = {asyncio.create_task(slot.run()): slot for slot in self.slots}
        ready = asyncio.create_task(self._until_ready())
        done, _ = await asyncio.wait(
            {ready, *self._tasks}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        ready.cancel()
        for task in done:
            task.result()
        if not done:
            raise GantlineError(
                f"No process of the proof could start: {self._last_words() or 'it said nothing'}.",
                next_step="Try `gantline doctor` with the same store.",
            )

    async def _until_ready(self) -> None:
        for ready in self._ready.values():
            await ready.wait()

    def _last_words(self) -> str:
        logs = sorted(self.settings.folder.glob("*" + LOG))
        lines = [line for file in logs for line in file.read_text(errors="replace").splitlines()]
        return lines[-1].rstrip(".") if lines else ""

    @property
    def workers(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.role == "worker"]

    @property
    def pids(self) -> list[int]:
        """Of all processes that run now."""
        return [slot.pid for slot in self.slots if slot.pid is not None]

    def harm(self, step: Step) -> None:
        self.slots[int(step.which * len(self.slots))].harm(step)

    async def calm(self) -> None:
        await asyncio.gather(*(slot.calm() for slot in self.slots))

    async def end(self, role: Role) -> None:
        """Let the processes of a role finish."""
        tasks = {task for task, slot in self._tasks.items() if slot.role == role}
        await asyncio.gather(*(self._tasks[task].end() for task in tasks))
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            del self._tasks[task]
            task.result()

    async def close(self) -> None:
        """End whatever still runs, at once."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        os.close(self.pipe)
        os.close(self._held)
        self.log.close()


def _environment(url: str) -> dict[str, str]:
    """Without the settings of whoever runs the proof: they are for other jobs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return {**kept, STORE: url, "PYTHONPATH": paths}
