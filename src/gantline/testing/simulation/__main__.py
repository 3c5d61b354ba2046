"""`python -m gantline.testing.simulation`: run seeds for a time, and shorten what breaks a rule.

--seed 12 --store memory     one seed, with its record
--minutes 3                  seeds on every store, on all processors
--script failed.json         a script that was stored
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import Final, get_args

import msgspec

from gantline.runtime import monotonic
from gantline.testing.simulation.drawing import draw_script
from gantline.testing.simulation.run import Report, simulate
from gantline.testing.simulation.script import Script, StoreKind
from gantline.testing.simulation.shrink import shrink

_AT_ONCE: Final = 2
"""How many seeds a process runs before the time is looked at."""


class Tally(msgspec.Struct):
    """What many runs came to."""

    seeds: int = 0
    calls: int = 0
    idle_calls: int = 0
    """Those that found nothing to do."""
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    jobs: int = 0
    runs: int = 0
    failed: list[tuple[int, str]] = []

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.calls += sum(report.calls.values())
        self.idle_calls += report.idle_calls
        self.faults += report.faults
        self.jobs += report.jobs
        self.runs += report.runs
        if report.violations:
            self.failed.append((report.seed, report.violations[0]))

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
    parser.add_argument("--store", choices=get_args(StoreKind), action="append")
    parser.add_argument("--script", type=Path, help="run a stored script")
    parser.add_argument("--keep", type=Path, help="where to store the script of a seed that fails")
    options = parser.parse_args(arguments)
    stores: list[StoreKind] = options.store or list(get_args(StoreKind))
    if options.minutes is not None:
        return _run_for(options.minutes, options.seed or 1, stores, options.keep)
    if options.script is not None:
        script = msgspec.json.decode(options.script.read_bytes(), type=Script)
        return _show(script, options.keep)
    return max(_show(draw_script(options.seed or 1, store), options.keep) for store in stores)


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


def _run_for(minutes: float, first: int, stores: Sequence[StoreKind], keep: Path | None) -> int:
    """Give each store the same time; seeds go to all processors."""
    failed = 0
    for store in stores:
        tally, until = Tally(), monotonic() + 60 * minutes / len(stores)
        with ProcessPoolExecutor() as pool:
            batches = _batches(first, store, until)
            waiting = [pool.submit(_run_batch, *one) for one in islice(batches, 4)]
            while waiting:
                for report in waiting.pop(0).result():
                    tally.add(report)
                if (batch := next(batches, None)) is not None:
                    waiting.append(pool.submit(_run_batch, *batch))
        _say(f"{store}: {tally}")
        for seed, violation in tally.failed:
            _say(f"  seed {seed}: {violation}")
            _say(f"  make simulate SEED={seed} STORE={store}")
        failed += len(tally.failed)
    return bool(failed)


def _batches(first: int, store: StoreKind, until: float) -> Iterator[tuple[int, StoreKind]]:
    for seed in count(first, _AT_ONCE):
        if monotonic() >= until:
            return
        yield seed, store


def _run_batch(first: int, store: StoreKind) -> list[Report]:
    reports = [simulate(draw_script(seed, store)) for seed in range(first, first + _AT_ONCE)]
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
