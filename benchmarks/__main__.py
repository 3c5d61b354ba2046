"""The commands: `python -m benchmarks [--quick] [NAME …]`, `… guard BASE` and `… calls [BASE]`."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from benchmarks import claim_cost, reads, sqlite_rates
from benchmarks.bench import Bench
from benchmarks.conditions import read_conditions
from benchmarks.flow import everything as flow
from benchmarks.hot_path import calls, guard
from benchmarks.http import everything as http
from benchmarks.page import PAGE, RESULTS, write_page
from benchmarks.postgres import everything as postgres
from benchmarks.redis import everything as redis
from benchmarks.report import GANTLINE, Report
from benchmarks.scale import FULL, QUICK
from benchmarks.steady import everything as steady
from benchmarks.worker import everything as worker
from tests.servers.missing import ServerMissing

BENCHMARKS: Final[dict[str, Callable[[Bench], None]]] = {
    "rates": sqlite_rates.run,
    "claim_cost": claim_cost.run,
    "reads": reads.run,
    "worker": worker.run,
    "postgres": postgres.run_beside_peers,
    "postgres_depth": postgres.run_deep,
    "redis": redis.run,
    "http": http.run,
    "steady": steady.run,
    **flow.PARTS,
}
_TOGETHER: Final = {"flow": tuple(flow.PARTS)}
"""Names for several of them."""
# They take an hour, so they run only where they are named.
_ONLY_BY_NAME: Final = frozenset({"steady", *flow.PARTS})
# They compare trees, so they have words of their own, and write no page.
TOOLS: Final[dict[str, Callable[[Sequence[str]], int]]] = {"guard": guard.main, "calls": calls.main}
_DEEP_JOBS: Final = 10_000_000


def main() -> None:
    if tool := TOOLS.get("".join(sys.argv[1:2])):
        sys.exit(tool(sys.argv[2:]))
    arguments = _arguments()
    ordinary = tuple(name for name in BENCHMARKS if name not in _ONLY_BY_NAME)
    named = [each for name in arguments.names for each in _TOGETHER.get(name, (name,))]
    names = tuple(dict.fromkeys(named)) or ordinary
    with TemporaryDirectory(prefix="gantline-bench-") as folder:
        conditions = read_conditions(Path(folder), benchmarks=names, quick=arguments.quick)
        report = Report(commit=conditions.commit)
        report.say(
            f"Python {conditions.python}, SQLite {conditions.sqlite}, "
            f"PostgreSQL {conditions.postgres}, {conditions.cores} cores, "
            f"{conditions.file_system} (fsync {conditions.fsync_ms} ms)"
        )
        scale = QUICK if arguments.quick else FULL
        if arguments.deep:
            scale = msgspec.structs.replace(scale, stored_jobs=_DEEP_JOBS)
        if arguments.minutes:
            scale = msgspec.structs.replace(scale, steady_minutes=arguments.minutes)
        bench = Bench(Path(folder), scale, report)
        for name in names:
            start = time.monotonic()
            report.say(f"{name} …")
            report.benchmark = name
            try:
                BENCHMARKS[name](bench)
            except ServerMissing as missing:
                report.leave_out(GANTLINE, what=name, reason=str(missing))
            report.say(f"{name} took {time.monotonic() - start:.0f} s")
    report.write(RESULTS, conditions)
    write_page()
    print(report.table())
    report.say(f"written to {RESULTS} and {PAGE}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Gantline.",
        epilog="`guard BASE` and `calls [BASE]` tell what a change did; each has a --help.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        type=_known,
        help=f"which to run: {', '.join((*BENCHMARKS, *_TOGETHER))} "
        "(without a name: all but steady and flow)",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    parser.add_argument(
        "--deep", action="store_true", help="PostgreSQL is read with ten million jobs in it"
    )
    parser.add_argument(
        "--minutes", type=int, metavar="N", help="steady goes on for so long on each store"
    )
    return parser.parse_args()


def _known(name: str) -> str:
    if name not in BENCHMARKS and name not in _TOGETHER:
        known = ", ".join((*BENCHMARKS, *_TOGETHER))
        raise argparse.ArgumentTypeError(f"there is no benchmark {name!r}, only {known}")
    return name


if __name__ == "__main__":
    main()
