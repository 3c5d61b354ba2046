"""`python -m gantline.testing.simulation`: run seeds, and print what they found."""

import argparse
import os
import sys
import time

from gantline.testing.simulation.run import simulate
from gantline.testing.simulation.script import draw_script


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--store", default="memory")
    parser.add_argument("--notes", action="store_true")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, *sys.orig_argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        began = time.process_time()
        report = simulate(draw_script(seed, options.store))
        took = time.process_time() - began
        print(
            seed,
            report.digest[:12],
            f"{took:.1f}s cpu, {report.virtual_seconds:.0f}s virtual, {report.turns} turns, {sum(report.calls.values())} calls, {sum(report.faults.values())} faults, {report.jobs} jobs, {report.runs} runs",
        )
        if options.notes:
            print("\n".join(report.notes))
        for violation in report.violations:
            failed += 1
            print("   !!", violation[:1500])
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
