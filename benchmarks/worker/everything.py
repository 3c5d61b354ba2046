"""`worker`: all measures of the worker and of submitting to it, one after the other."""

from benchmarks.bench import Bench
from benchmarks.worker import draining, importing, occupancy, pick_up, submitting


def run(bench: Bench) -> None:
    for part in (importing, pick_up, occupancy, submitting, draining):
        part.run(bench)
