"""No-op jobs drained by worker processes, beside the peers in the same rounds."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.bench import Bench
from benchmarks.contest.children import Drained, drained_by
from benchmarks.contest.meter import INVOICE
from benchmarks.report import GANTLINE, Goal
from benchmarks.worker.peers import Peer, available_peers
from benchmarks.worker.workload import Workload, open_workload

ENGINE: Final = "sqlite"
SLOTS: Final = 500
THREAD_SLOTS: Final = 20
PROCESS_SLOTS: Final = 4
PROCESSES: Final = (1, 2)

_RATIO_GOAL: Final = Goal(least=8)
_CPU_GOAL: Final = Goal(most=40)


class Contender(NamedTuple):
    """Something that drains an empty-to-be file."""

    jobs: int
    drain: Callable[[Path], Drained]


def run(bench: Bench) -> None:
    peers = available_peers(bench.report)
    contenders = _contenders(bench, peers)
    taken: dict[str, list[Drained]] = {name: [] for name in contenders}
    for number in range(bench.scale.worker_runs):
        bench.report.say(f"  drain, run {number + 1} of {bench.scale.worker_runs}")
        for name, contender in contenders.items():
            with bench.empty_file() as path:
                drained = contender.drain(path)
            assert drained.jobs == contender.jobs, f"{name}: {drained.jobs} of {contender.jobs}"
            taken[name].append(drained)
    _report(bench, taken, peers)


def _contenders(bench: Bench, peers: list[Peer]) -> dict[str, Contender]:
    ours, theirs = bench.scale.drain_jobs, bench.scale.peer_jobs
    found: dict[str, Contender] = {}
    for processes in PROCESSES:
        name = _metric(processes)
        found[name] = Contender(ours, _draining("loop", ours, SLOTS, processes))
        for peer in peers:
            drain = _draining_peer(peer, theirs, processes)
            found[f"{name}, {peer.name}"] = Contender(theirs, drain)
    threads, children = bench.scale.thread_jobs, bench.scale.process_jobs
    found["thread handlers"] = Contender(threads, _draining("thread", threads, THREAD_SLOTS, 1))
    found["process handlers"] = Contender(
        children, _draining("process", children, PROCESS_SLOTS, 1)
    )
    return found


def _metric(processes: int) -> str:
    return f"no-op drain, {processes} process{'es' if processes > 1 else ''}"


def _draining(kind: str, jobs: int, slots: int, processes: int) -> Callable[[Path], Drained]:
    def drain(path: Path) -> Drained:
        workload = open_workload(path)
        asyncio.run(fill(workload, kind, jobs))
        return drained_by(child_command(path, slots, "drain"), processes)

    return drain


def child_command(path: Path, slots: int, measure: str) -> list[str]:
    module = "benchmarks.worker.gantline_child"
    return [sys.executable, "-m", module, str(path), str(slots), measure]


async def fill(workload: Workload, kind: str, jobs: int) -> None:
    async with workload.app:
        job_type = getattr(workload, kind)
        await job_type.submit_many([INVOICE] * jobs)


def _draining_peer(peer: Peer, jobs: int, processes: int) -> Callable[[Path], Drained]:
    def drain(path: Path) -> Drained:
        peer.fill(path, jobs)
        return drained_by(peer.drain_command(path), processes)

    return drain


def _report(bench: Bench, taken: dict[str, list[Drained]], peers: list[Peer]) -> None:
    add = bench.report.add
    by_peer = {f"{_metric(number)}, {peer.name}": peer for number in PROCESSES for peer in peers}
    for name, runs in taken.items():
        system = by_peer[name].name if name in by_peer else GANTLINE
        rates = [drained.rate for drained in runs]
        add(engine=ENGINE, system=system, metric=name, unit="jobs/s", values=rates)
        if name in by_peer:
            own = [drained.rate for drained in taken[name.removesuffix(f", {system}")]]
            bench.report.compare(
                engine=ENGINE,
                metric=name,
                values=own,
                beside=rates,
                beside_name=system,
                goal=_RATIO_GOAL if by_peer[name].is_goal else None,
            )
        elif name != "process handlers":  # what its children used is not in the worker's own time
            micros = [drained.cpu_micros for drained in runs]
            goal = _CPU_GOAL if name == _metric(1) else None
            add(
                engine=ENGINE,
                system=GANTLINE,
                metric=f"{name}, CPU per job",
                unit="µs",
                values=micros,
                goal=goal,
            )
