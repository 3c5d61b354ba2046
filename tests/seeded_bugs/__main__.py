"""`python -m tests.seeded_bugs`: try the bugs, print a table, and keep it as data."""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.catching import Catch, try_bug
from tests.seeded_bugs.suite import servers

RESULTS: Final = Path(__file__).with_name("results.json")


def read_results() -> dict[str, Catch]:
    if not RESULTS.exists():
        return {}
    catches = msgspec.json.decode(RESULTS.read_bytes(), type=list[Catch])
    return {catch.bug: catch for catch in catches if catch.bug in BUGS}


def _write_results(known: dict[str, Catch]) -> None:
    ordered = [known[name] for name in BUGS if name in known]
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n")


def _line(catch: Catch) -> str:
    rule = catch.rule or "NOT CAUGHT"
    if catch.unsound_seeds:
        rule += f" (WITHOUT THE BUG TOO: seeds {catch.unsound_seeds})"
    seed = "" if catch.seed is None else str(catch.seed)
    calls = "" if catch.verb_calls is None else str(catch.verb_calls)
    cells = (catch.bug, catch.part, catch.by, rule[:160], seed, calls, f"{catch.cpu_seconds:.1f}")
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[], help="a part of a bug's name")
    parser.add_argument("--part", action="append", default=[])
    parser.add_argument("--missing", action="store_true", help="those not caught so far, go on")
    parser.add_argument("--no-data", action="store_true", help="only print")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--most-seconds", type=float, default=60.0, help="of CPU time, for a bug")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # a seed is the same run only so
        os.execve(  # noqa: S606  # itself
            sys.executable,
            [sys.executable, *sys.orig_argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    known = read_results()
    missed = 0
    print("| bug | part | caught by | rule | seed | verb calls | CPU s |")  # noqa: T201
    print("|---|---|---|---|---|---|---|")  # noqa: T201
    with servers():
        for name, bug in BUGS.items():
            if options.only and not any(one in name for one in options.only):
                continue
            if options.part and bug.part not in options.part:
                continue
            before = known.get(name) if options.missing else None
            if before is not None and before.is_caught:
                continue
            first_seed = options.first_seed
            if before is not None and before.tried_until is not None:
                first_seed = before.tried_until + 1
            catch = try_bug(bug, most_seconds=options.most_seconds, first_seed=first_seed)
            if before is not None and before.tried_until is not None:
                catch = catch.after(before)
            missed += not catch.is_caught
            known[name] = catch
            if not options.no_data:
                _write_results(known)
            print(_line(catch), flush=True)  # noqa: T201
    return missed


if __name__ == "__main__":
    sys.exit(main())
