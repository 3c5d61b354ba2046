"""One run of a script: starts the processes, does the steps, heals everything, and judges."""

import asyncio
import logging
import warnings
from collections import Counter
from contextlib import ExitStack, redirect_stderr
from datetime import timedelta
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import msgspec

from gantline.contract.retention import Retention
from gantline.contract.store import JobStore
from gantline.proof.checker import check
from gantline.proof.rest import read_rest
from gantline.testing.simulation.application import (
    Journal,
    Receiver,
    SimulatedApplication,
    make_application,
)
from gantline.testing.simulation.clients import Clients
from gantline.testing.simulation.data_rules import check_data, check_effects
from gantline.testing.simulation.handler_rules import check_handlers
from gantline.testing.simulation.network import Network
from gantline.testing.simulation.outside import Outside
from gantline.testing.simulation.resting import Resting
from gantline.testing.simulation.script import Script, Trouble
from gantline.testing.simulation.stores import Stores, Wrap
from gantline.testing.simulation.worker_rules import check_workers, given_runs
from gantline.testing.simulation.workers import Workers
from gantline.testing.simulation.world import Process, World
from gantline.webhooks import http_sender


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a run."""

    seed: int
    violations: tuple[str, ...]
    digest: str
    virtual_seconds: float
    turns: int
    calls: Counter[str]
    idle_calls: int
    """Claims and reads that found nothing: what passes while nothing happens."""
    faults: Counter[str]
    jobs: int
    runs: int
    happened: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    """The record: what was done and what went wrong, with its time."""

    def without_notes(self) -> "Report":
        return msgspec.structs.replace(self, notes=(), happened=())


def simulate(script: Script, *, wrap: Wrap = lambda store, process: store) -> Report:
    """Run a script; the same script gives the same report."""
    logging.disable(logging.CRITICAL)
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(prefix="gantline-simulation"))
            stack.enter_context(redirect_stderr(StringIO()))  # stacks of workers that give up
            # Coroutines of processes that crashed are never awaited.
            stack.enter_context(warnings.catch_warnings(action="ignore"))
            return _Simulation(script, Path(folder), wrap).run()
    finally:
        logging.disable(logging.NOTSET)


class _Simulation:
    def __init__(self, script: Script, folder: Path, wrap: Wrap) -> None:
        self._script = script
        self._world = world = World(script.seed)
        self._network = Network(world, script.chances, is_remote=script.store == "memory")
        if script.faults is not None:
            self._network.allowed = set(script.faults)
        self._journal = Journal(runs=[], heard=[], ends_heard=set(), delivered=[])
        self._outside = Outside(world)
        self._stores = Stores(script.store, folder, self._network, self._outside, wrap)
        self._workers = Workers(script, world, self._network, self._outside, self._application)
        self._jobs = self._runs = 0
        self._violations: list[str] = []

    def run(self) -> Report:
        world = self._world
        try:
            with patch.object(http_sender, "HttpSender", self._receiver):
                world.run(self._live)
        except Exception as error:
            self._violations.append(f"the run could not go on: {error!r}")
        self._violations += world.errors
        ended = [call for call in self._stores.history.calls if call.is_answered]
        return Report(
            seed=self._script.seed,
            violations=tuple(self._violations),
            digest=world.digest.hexdigest(),
            virtual_seconds=world.virtual_seconds,
            turns=world.turns,
            calls=self._network.calls,
            idle_calls=sum(not call.answers or call.answers == (0,) for call in ended),
            faults=self._network.faults,
            jobs=self._jobs,
            runs=self._runs,
            happened=tuple(self._network.happened),
            notes=tuple(world.notes),
        )

    def _receiver(self, *arguments: object, **options: object) -> Receiver:
        return Receiver(self._world.current, self._network, self._journal)

    def _application(self, process: Process) -> SimulatedApplication:
        keep = self._script.retention
        retention = Retention()
        if keep is not None:
            retention = Retention.split(timedelta(seconds=keep), timedelta(seconds=2 * keep))
        return make_application(
            process,
            self._stores.open_in(process),
            self._network,
            self._journal,
            crash=self._world.crash,
            retention=retention,
            limits=dict(self._script.limits),
        )

    async def _live(self) -> None:
        world = self._world
        truth = self._stores.open_plain()
        await truth.open()
        clients = Clients(world, self._outside, self._application)
        clients.listen()
        self._workers.start()
        began = world.now
        for step in self._script.steps:
            await asyncio.sleep(max(0.0, began + step.at - world.now))
            world.note(f"step {type(step).__name__}")
            if isinstance(step, Trouble):
                self._workers.trouble(step)
            else:
                clients.begin(step)
        resting = Resting(world, self._network, clients, self._workers, self._journal)
        await resting.calm_down(truth)
        await resting.end_all(truth, self._script.lease)
        if left := await self._workers.stop():
            resting.violations.append(f"these do not stop: {left}")
        # Handlers of processes that crashed end only when all is let go.
        self._jobs, self._runs = len(clients.submitted), len(self._journal.runs)
        self._violations += [*clients.wrong_answers, *resting.violations]
        await self._judge(clients.app, truth)
        await truth.close()

    async def _judge(self, app: SimulatedApplication, truth: JobStore) -> None:
        script, outside, journal = self._script, self._outside, self._journal
        registry, calls = app.registry, self._stores.history.calls
        policies = {name: registry.policy_for(name) for name in registry.job_types}
        rest = await read_rest(truth)
        judged = check(calls, rest=rest, policies=policies)
        given = given_runs(calls)
        tokens = {(str(one.run.job_id), one.run.fence): token for token, one in given.items()}
        self._violations += map(str, judged.violations)
        self._violations += check_data(script, outside, journal, calls)
        self._violations += check_handlers(script, outside, journal.runs, tokens)
        self._violations += check_workers(script, outside, calls, given)
        if script.store == "sqlite":
            self._violations += check_effects(self._stores.file, rest.jobs)
