"""The report of a proof: what was done, what went wrong on the way, and whether a promise broke."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gantline.proof.facts import Violation

_LOST: Final = frozenset({"lost"})
_DOUBLED: Final = frozenset({"one end", "one run", "terminal", "takeover"})
_EVENTS: Final = frozenset({"event"})
_MOST_SHOWN: Final = 20
PROVEN: Final = "PROVEN"
BROKEN: Final = "BROKEN"
NOTHING: Final = "NOTHING PROVEN"


class Recovery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """From the kill of a worker to the next start of one of the jobs that it ran, in seconds."""

    kills: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Recovery":
        found = sorted(seconds)
        return cls(
            kills=len(found),
            p50=_percentile(found, 0.50),
            p99=_percentile(found, 0.99),
            longest=_percentile(found, 1),
        )


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The figures; `verdict` sums them up."""

    store: str
    seed: int
    minutes: float
    """For which faults were made."""
    interrupted: bool
    workers: int
    clients: int
    calls: int
    """Of verbs, of all processes."""
    unanswered: int
    jobs: int
    """Accepted, with those that followed others."""
    ended: dict[str, int]
    faults: dict[str, int]
    no_connection_faults: str
    """Why there are none; empty where there are."""
    lost: int
    unended: int
    doubled: int
    events: int
    """Those logged, each of which was to be delivered."""
    events_missing: int
    stalls: int
    others: int
    """Other rules that were broken."""
    recovery: Recovery
    violations: tuple[str, ...]
    ended_alone: tuple[str, ...]
    """Processes that ended though nobody asked them to. A supervisor would start them again."""

    @property
    def verdict(self) -> str:
        broken = self.lost + self.unended + self.doubled + self.events_missing
        if broken + self.stalls + self.others:
            return BROKEN
        return PROVEN if self.jobs and sum(self.faults.values()) else NOTHING

    @property
    def data(self) -> dict[str, object]:
        found: dict[str, object] = msgspec.to_builtins(self)
        return {"verdict": self.verdict, **found}

    def __str__(self) -> str:
        return "\n".join(_lines(self))


class Judged(msgspec.Struct, frozen=True):
    """Violations of the checker by what they mean to who relies on the store."""

    lost: int
    doubled: int
    events: int
    others: int

    @classmethod
    def of(cls, violations: Sequence[Violation]) -> "Judged":
        rules = Counter(violation.rule for violation in violations)
        lost, doubled, events = (
            sum(rules[rule] for rule in group) for group in (_LOST, _DOUBLED, _EVENTS)
        )
        return cls(lost, doubled, events, rules.total() - lost - doubled - events)


def _percentile(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return 0.0
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


def _lines(report: Report) -> list[str]:
    total = sum(report.faults.values())
    ended = ", ".join(f"{count} {status}" for status, count in report.ended.items() if count)
    early = ", ended early" if report.interrupted else ""
    recovery = report.recovery
    rows = [
        ("store", report.store),
        ("seed", str(report.seed)),
        ("faults for", f"{report.minutes:.1f} min{early}"),
        ("processes", f"{report.workers} workers, {report.clients} clients"),
        ("calls", f"{report.calls} ({report.unanswered} without an answer)"),
        ("faults", str(total)),
        *((f"  {kind}", str(count)) for kind, count in report.faults.items() if count),
    ]
    if report.no_connection_faults:
        rows.append(("  connections", f"not harmed: {report.no_connection_faults}"))
    if report.ended_alone:
        rows.append(("ended alone", f"{len(report.ended_alone)} processes, started again"))
    rows += [
        ("jobs accepted", str(report.jobs)),
        ("  ended", ended or "none"),
        ("jobs lost", str(report.lost)),
        ("jobs not ended", str(report.unended)),
        ("ends doubled", str(report.doubled)),
        ("events missing", f"{report.events_missing} of {report.events}"),
        ("stalls", str(report.stalls)),
        ("other violations", str(report.others)),
        (
            "recovery",
            f"p50 {recovery.p50:.1f} s, p99 {recovery.p99:.1f} s, longest {recovery.longest:.1f} s "
            f"({recovery.kills} workers killed with runs)",
        ),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    shown = [f"  {one}" for one in report.violations[:_MOST_SHOWN]]
    if len(report.violations) > _MOST_SHOWN:
        shown.append(f"  … and {len(report.violations) - _MOST_SHOWN} more")
    return [*lines, *(("", "violations", *shown) if shown else ()), "", _sentence(report)]


def _sentence(report: Report) -> str:
    match report.verdict:
        case "PROVEN":
            return (
                f"{PROVEN}: {report.jobs} jobs, {sum(report.faults.values())} faults, "
                "nothing lost, doubled or stalled."
            )
        case "BROKEN":
            return f"{BROKEN}: a promise did not hold. Repeat with --seed {report.seed}."
        case _:
            return f"{NOTHING}: no job was accepted, or no fault was made."
