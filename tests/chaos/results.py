"""The results of all cases in one file, one entry each; written where GANTLINE_CHAOS_RESULTS=1."""

import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

from gantline.proving.report import Report

FILE: Final = Path(__file__).with_name("results.json")
VARIABLE: Final = "GANTLINE_CHAOS_RESULTS"


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one fault did on one store."""

    store: str
    fault: str
    verdict: str
    minutes: float
    seed: int
    faults: dict[str, int]
    calls: int
    jobs: int
    lost: int
    unended: int
    doubled: int
    events: int
    events_missing: int
    stalls: int
    others: int
    ended_alone: int
    recovery_p50: float
    recovery_p99: float
    recoveries: int

    @classmethod
    def of(cls, store: str, fault: str, report: Report) -> "Result":
        return cls(
            store=store,
            fault=fault,
            verdict=report.verdict,
            minutes=report.minutes,
            seed=report.seed,
            faults={kind: count for kind, count in report.faults.items() if count},
            calls=report.calls,
            jobs=report.jobs,
            lost=report.lost,
            unended=report.unended,
            doubled=report.doubled,
            events=report.events,
            events_missing=report.events_missing,
            stalls=report.stalls,
            others=report.others,
            ended_alone=len(report.ended_alone),
            recovery_p50=report.recovery.p50,
            recovery_p99=report.recovery.p99,
            recoveries=report.recovery.kills,
        )


def write(result: Result, file: Path = FILE) -> None:
    """Put a result into the file, in place of the one of the same store and fault."""
    if os.environ.get(VARIABLE) != "1":
        return
    with file.open("a+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)  # several cases may run at a time
        opened.seek(0)
        found = msgspec.json.decode(opened.read() or b"[]", type=list[Result])
        by_case = {(one.fault, one.store): one for one in (*found, result)}
        ordered = [by_case[case] for case in sorted(by_case)]
        opened.truncate(0)
        opened.write(msgspec.json.format(msgspec.json.encode(ordered)) + b"\n")
