"""The workers of a run: processes that are started again when they end, and what befalls them."""

import asyncio
from datetime import timedelta
from typing import Final

from gantline.contract.job import DELIVERY_QUEUE
from gantline.testing.simulation.application import QUEUES, MakeApplication
from gantline.testing.simulation.network import WRITES, Network
from gantline.testing.simulation.outside import Outside
from gantline.testing.simulation.script import Script, Trouble
from gantline.testing.simulation.world import Process, World
from gantline.worker.settings import WorkerSettings
from gantline.worker.worker import Worker

_STOP_WITHIN_SECONDS: Final = 60.0


class Workers:
    """Starts them, troubles them and stops them."""

    def __init__(
        self,
        script: Script,
        world: World,
        network: Network,
        outside: Outside,
        make_application: MakeApplication,
    ) -> None:
        self._script = script
        self._world = world
        self._network = network
        self._outside = outside
        self._make_application = make_application
        self._settings = WorkerSettings(
            queues=dict.fromkeys([*sorted(set(QUEUES.values())), DELIVERY_QUEUE], script.slots),
            slots=script.slots_in_all,
            lease=timedelta(seconds=script.lease),
            drain=timedelta(seconds=script.drain),
        )
        self._workers: dict[str, Worker] = {}
        self._expected: set[str] = set()
        """Those that are to be there: what ends is started again."""
        world.on_end = self._ended

    def start(self) -> None:
        for number in range(self._script.workers):
            self._expected.add(f"worker-{number}")
            self._start(f"worker-{number}")

    def complaints(self) -> list[str]:
        """What is wrong with workers that have nothing to do."""
        found = [
            f"{name} says: {trouble}"
            for name, worker in self._workers.items()
            if (trouble := worker.trouble())
        ]
        found += [
            f"{name} has nothing to do, and {free} of {total} slots of {queue} are free"
            for name, worker in self._workers.items()
            if not worker.has_stuck_handlers
            for queue, (total, free) in worker.slots.items()
            if free < min(total, self._script.slots_in_all or total)
        ]
        missing = sorted(self._expected - {*self._workers})
        return found + [f"{name} is not there" for name in missing]

    def seconds_gone(self, session: str) -> float:
        """For how long the process is gone that has this session."""
        for label, life in self._outside.lives.items():
            if life.ended is not None and session.startswith(label.replace("/", "-") + "-"):
                return self._world.now - life.ended
        return 0.0

    async def stop(self) -> list[str]:
        """Stop all, and let none start again; return those that do not stop."""
        names = sorted(self._expected)
        self._expected.clear()
        until = self._world.now + _STOP_WITHIN_SECONDS
        left: list[Process] = []
        while self._world.now < until:
            left = [one for one in self._world.processes if one.name in names]
            if not left:
                break
            for process in left:  # one that is only starting can be asked a little later
                process.main.call_soon(self._stop, process)
            await asyncio.sleep(1.0)
        return [process.name for process in left]

    def trouble(self, step: Trouble) -> None:
        world, network = self._world, self._network
        until = world.now + step.seconds
        process = self._process(step.worker)
        network.faults[step.what] += 1
        match step.what:
            case "crash" if process is not None:
                world.crash(process)
            case "deploy" if process is not None:
                process.main.call_soon(self._stop, process)
            case "freeze" if process is not None:
                process.frozen_until = until
            case "block" if process is not None:
                process.main.blocked_until = until
            case "cut off" if process is not None:
                network.cut_off_until[process.name] = until
            case "slow" if process is not None:
                network.slow_until[process.name] = until
            case "freeze store" if network.server is not None:
                network.server.frozen_until = until
            case "refuse":
                for verb in WRITES if step.verb == "writes" else (step.verb,):
                    network.refused_until[verb] = until
            case "jump":
                world.jumped_by += timedelta(seconds=step.seconds)
            case "reboot":
                for one in [one for one in world.processes if one.name in self._expected]:
                    world.crash(one)
                world.jumped_by += timedelta(seconds=step.seconds)
            case _:
                pass
        self._outside.note_trouble(step, process)

    # -- processes --------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        process = self._world.start(name)
        self._outside.note_start(process)

        async def main() -> None:
            app = self._make_application(process)
            async with app.working(self._settings) as worker:
                self._workers[name] = worker
                await worker.run()
            self._outside.note_end(process, in_order=True)

        process.run(main)

    def _stop(self, process: Process) -> None:
        if worker := self._workers.get(process.name):
            self._outside.note_stop(process)
            worker.stop()

    def _ended(self, process: Process) -> None:
        self._outside.note_end(process)
        self._workers.pop(process.name, None)
        if process.name in self._expected:
            seconds = self._world.random.uniform(0.1, 5.0)
            self._world.outside.main.call_later(seconds, self._start_if_gone, process.name)

    def _start_if_gone(self, name: str) -> None:
        if name in self._expected and not any(one.name == name for one in self._world.processes):
            self._start(name)

    def _process(self, number: int) -> Process | None:
        name = f"worker-{number % self._script.workers}"
        return next((one for one in self._world.processes if one.name == name), None)
