"""`python -m tests.mutants`: try mutants, print a table and the totals, and keep them as data."""

import argparse
import signal
import sys
from functools import partial

from tests.mutants.catalogue import all_mutants
from tests.mutants.killing import Result, kill_all
from tests.mutants.mutant import KILLERS, Mutant
from tests.mutants.results import LEAST_SHARE, read_results, totals, write_results
from tests.mutants.trying import Trial, begin_trial
from tests.seeded_bugs.suite import servers


def _line(result: Result) -> str:
    verdict = result.killed_by or f"EQUIVALENT: {result.equivalent}"
    if not result.killed_by and not result.equivalent:
        verdict = "SURVIVED"
    cells = (result.mutant, result.change[:160], verdict, f"{result.seconds:.1f}")
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """The exit code says whether more than one in ten has survived, in any part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[], help="a part of a mutant's name")
    parser.add_argument("--part", action="append", default=[])
    parser.add_argument(
        "--missing", action="store_true", help="those that were not tried, or survived"
    )
    parser.add_argument("--no-data", action="store_true", help="only print")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers are to be stopped
    mutants = all_mutants()
    known = read_results(mutants)
    chosen = [
        mutant
        for name, mutant in mutants.items()
        if (not options.only or any(one in name for one in options.only))
        and (not options.part or mutant.part in options.part)
        and not (options.missing and name in known and known[name].is_settled)
    ]
    tried: list[Result] = []

    def try_all(some: list[Mutant], trial: Trial) -> None:
        for result in kill_all(some, trial, processes=options.processes):
            tried.append(result)
            known[result.mutant] = result
            print(_line(result), flush=True)  # noqa: T201
            if not options.no_data and len(tried) % 10 == 0:
                write_results(known, mutants)

    print("| mutant | change | killed by | s |")  # noqa: T201
    print("|---|---|---|---|")  # noqa: T201
    with servers():
        for part, killers in KILLERS.items():
            if some := [mutant for mutant in chosen if mutant.part == part]:
                begin_trial(killers, some, partial(try_all, some))
    if not options.no_data:
        write_results(known, mutants)
    for name, total in totals(tried if options.no_data else known.values()).items():
        print(f"{name}: {total}")  # noqa: T201
    return int(any(total.share_killed < LEAST_SHARE for total in totals(tried).values()))


if __name__ == "__main__":
    sys.exit(main())
