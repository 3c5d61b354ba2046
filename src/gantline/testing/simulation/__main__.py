"""`python -m gantline.testing.simulation`: run seeds for a time, and shorten what breaks a rule.

--seed 12 --store memory     one seed, with its record
--minutes 3                  seeds on every store, on all processors
--calls 10000000             the same, until each store was asked so often for something
--steps 240                  with so many steps in each script: more happens at once
--streams 48                 with so many clients that submit one job after the other: less is idle
--script failed.json         a script that was stored
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import count
from math import inf
from pathlib import Path
from time import process_time
from typing import Final, NamedTuple, get_args

import msgspec

from gantline.runtime import monotonic
from gantline.testing.simulation.drawing import STEPS, draw_script
from gantline.testing.simulation.run import Report, simulate
from gantline.testing.simulation.script import Script, StoreKind
from gantline.testing.simulation.shrink import shrink

_AT_ONCE: Final = 2
"""How many seeds a process runs before the time is looked at."""


class Tally(msgspec.Struct, kw_only=True, rename="camel"):
    """What many runs on one store came to."""

    store: StoreKind
    first_seed: int
    seeds: int = 0
    calls: int = 0
    idle_calls: int = 0
    """Those that found nothing to do."""
    faults: dict[str, int] = {}
    jobs: int = 0
    runs: int = 0
    minutes: float = 0.0
    processors: int = 0
    cpu_minutes: float = 0.0
    """Of all processors; 0: not measured."""
    failed: list[tuple[int, str]] = []

    @property
    def minutes_of_a_core(self) -> float:
        return self.cpu_minutes or self.minutes * self.processors

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.calls += sum(report.calls.values())
        self.idle_calls += report.idle_calls
        self.faults = dict(Counter(self.faults) + report.faults)
        self.jobs += report.jobs
        self.runs += report.runs
        if report.violations:
            self.failed.append((report.seed, report.violations[0]))

    @property
    def busy_calls(self) -> int:
        return self.calls - self.idle_calls

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, {self.calls:,} verb calls ({self.idle_calls:,} of them idle), "
            f"{sum(self.faults.values()):,} faults, {self.jobs:,} jobs, {self.runs:,} runs, "
            f"{len(self.failed)} seeds with violations"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 where a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m gantline.testing.simulation")
    parser.add_argument("--seed", type=int, help="the first seed, or the only one")
    parser.add_argument("--minutes", type=float, help="how long; without it one seed is run")
    parser.add_argument("--calls", type=int, help="how many verb calls that are not idle")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a script (%(default)s)")
    parser.add_argument("--streams", type=int, default=0, help="clients that are always busy")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", choices=get_args(StoreKind), action="append")
    parser.add_argument("--script", type=Path, help="run a stored script")
    parser.add_argument("--keep", type=Path, help="where to store the script of a seed that fails")
    parser.add_argument("--results", type=Path, help="a file to which the sums are added, as JSON")
    options = parser.parse_args(arguments)
    stores: list[StoreKind] = options.store or list(get_args(StoreKind))
    if options.minutes is not None or options.calls is not None:
        seconds = inf if options.minutes is None else 60 * options.minutes / len(stores)
        most = _Most(seconds, inf if options.calls is None else options.calls)
        many = _Many(options.seed or 1, options.steps, options.streams, options.processes)
        tallies = [_run_many(store, many, most, options.results) for store in stores]
        return any(tally.failed for tally in tallies)
    if options.script is not None:
        script = msgspec.json.decode(options.script.read_bytes(), type=Script)
        return _show(script, options.keep)
    one = _Many(options.seed or 1, options.steps, options.streams, 1)
    return max(_show(one.draw(one.first, store), options.keep) for store in stores)


def _show(script: Script, keep: Path | None) -> int:
    """Run one script, show all of it, and shorten it where it breaks a rule."""
    report = simulate(script)
    _say("\n".join(report.notes))
    calls, faults = sum(report.calls.values()), sum(report.faults.values())
    _say(
        f"seed {script.seed} on {script.store}: {calls} calls, {faults} faults, {report.jobs} jobs,"
        f" {report.virtual_seconds:.0f} virtual seconds, digest {report.digest[:16]}"
    )
    for violation in report.violations:
        _say(f"VIOLATION {violation}")
    if report.violations:
        _say("shortening the script ...")
        shorter = shrink(script, simulate, said=lambda one: _say(f"  {len(one.steps)} steps"))
        text = msgspec.json.format(msgspec.json.encode(shorter), indent=1)
        (keep or Path(f"seed-{script.seed}-{script.store}.json")).write_bytes(text)
        _say(text.decode())
    return bool(report.violations)


class _Most(NamedTuple):
    """For each store, whichever is reached first."""

    seconds: float
    calls: float


class _Many(NamedTuple):
    """Which scripts, and how many are run at once."""

    first: int
    """The first seed."""
    steps: int
    streams: int
    processes: int

    def draw(self, seed: int, store: StoreKind) -> Script:
        return draw_script(seed, store, steps=self.steps, streams=self.streams)


def _run_many(store: StoreKind, many: _Many, most: _Most, results: Path | None) -> Tally:
    """Give seeds to all processes. What they came to is written while they go on."""
    tally, began = Tally(store=store, first_seed=many.first), monotonic()
    tally.processors = many.processes
    known = _read(results) if results is not None else []
    with ProcessPoolExecutor(many.processes) as pool:
        seeds = count(many.first, _AT_ONCE)
        waiting: list[Future[_Batch]] = []
        while True:
            is_over = monotonic() - began >= most.seconds or tally.busy_calls >= most.calls
            while not is_over and len(waiting) < 2 * many.processes:
                waiting.append(pool.submit(_run_batch, next(seeds), store, many))
            if not waiting:
                break
            reports, cpu_seconds = waiting.pop(0).result()
            for report in reports:
                tally.add(report)
                if report.violations:
                    _say(f"{store}: seed {report.seed}: {report.violations[0]}")
            tally.minutes = round((monotonic() - began) / 60, 2)
            tally.cpu_minutes = round(tally.cpu_minutes + cpu_seconds / 60, 4)
            if results is not None:
                _write([*known, tally], results)
    _say(f"{store}: {tally}")
    for seed, violation in tally.failed:
        _say(f"  seed {seed}: {violation}")
        _say(f"  make simulate SEED={seed} STORE={store} STEPS={many.steps} STREAMS={many.streams}")
    return tally


def _read(file: Path) -> list[Tally]:
    return msgspec.json.decode(file.read_bytes(), type=list[Tally]) if file.exists() else []


def _write(tallies: Sequence[Tally], file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(tallies)) + b"\n")


_Batch = tuple[list[Report], float]
"""And how many seconds of a processor they took."""


def _run_batch(first: int, store: StoreKind, many: _Many) -> _Batch:
    began = process_time()
    seeds = range(first, first + _AT_ONCE)
    reports = [simulate(many.draw(seed, store)) for seed in seeds]
    # Of runs that broke no rule only the numbers are of interest.
    short = [report if report.violations else report.without_notes() for report in reports]
    return short, process_time() - began


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # The order of a set of texts depends on it, and a seed is to be the same run everywhere.
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606  # ourselves
    sys.exit(main())
