"""`python -m gantline.testing.simulation`: run seeds for a time, and shorten what breaks a rule.

--seed 12 --store memory     one seed, with its record
--minutes 3                  seeds on every store, on all processors
--calls 10000000             the same, until each store was asked so often for something
--steps 240                  with so many steps in each script: more happens at once
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
    failed: list[tuple[int, str]] = []

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
    parser.add_argument("--store", choices=get_args(StoreKind), action="append")
    parser.add_argument("--script", type=Path, help="run a stored script")
    parser.add_argument("--keep", type=Path, help="where to store the script of a seed that fails")
    parser.add_argument("--results", type=Path, help="a file to which the sums are added, as JSON")
    options = parser.parse_args(arguments)
    stores: list[StoreKind] = options.store or list(get_args(StoreKind))
    if options.minutes is not None or options.calls is not None:
        seconds = inf if options.minutes is None else 60 * options.minutes / len(stores)
        most = _Most(seconds, inf if options.calls is None else options.calls)
        first = options.seed or 1
        tallies = [_run_many(store, first, most, steps=options.steps) for store in stores]
        if options.results is not None:
            _write(tallies, options.results)
        return any(tally.failed for tally in tallies)
    if options.script is not None:
        script = msgspec.json.decode(options.script.read_bytes(), type=Script)
        return _show(script, options.keep)
    seed, steps = options.seed or 1, options.steps
    return max(_show(draw_script(seed, store, steps=steps), options.keep) for store in stores)


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


def _run_many(store: StoreKind, first: int, most: _Most, *, steps: int) -> Tally:
    """Give seeds to all processors."""
    tally, began = Tally(store=store, first_seed=first), monotonic()
    tally.processors = os.cpu_count() or 1
    with ProcessPoolExecutor(tally.processors) as pool:
        seeds = count(first, _AT_ONCE)
        waiting: list[Future[list[Report]]] = []
        while True:
            is_over = monotonic() - began >= most.seconds or tally.busy_calls >= most.calls
            while not is_over and len(waiting) < 2 * tally.processors:
                waiting.append(pool.submit(_run_batch, next(seeds), store, steps))
            if not waiting:
                break
            for report in waiting.pop(0).result():
                tally.add(report)
    tally.minutes = round((monotonic() - began) / 60, 2)
    _say(f"{store}: {tally}")
    for seed, violation in tally.failed:
        _say(f"  seed {seed}: {violation}")
        _say(f"  make simulate SEED={seed} STORE={store} STEPS={steps}")
    return tally


def _write(tallies: Sequence[Tally], file: Path) -> None:
    """Add them to those of other runs."""
    known = msgspec.json.decode(file.read_bytes(), type=list[Tally]) if file.exists() else []
    file.write_bytes(msgspec.json.format(msgspec.json.encode([*known, *tallies])) + b"\n")


def _run_batch(first: int, store: StoreKind, steps: int) -> list[Report]:
    seeds = range(first, first + _AT_ONCE)
    reports = [simulate(draw_script(seed, store, steps=steps)) for seed in seeds]
    # Of runs that broke no rule only the numbers are of interest.
    return [report if report.violations else report.without_notes() for report in reports]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # The order of a set of texts depends on it, and a seed is to be the same run everywhere.
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606  # ourselves
    sys.exit(main())
