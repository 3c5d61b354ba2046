"""The figures of one tree on one store, and what is said of two trees side by side."""

from collections.abc import Sequence
from statistics import median
from typing import Final, Literal, NamedTuple

DRAIN: Final = "drain"
DRAIN_CPU: Final = "drain, CPU of the worker per job"
SINGLE: Final = "submit one by one, p50"
SINGLE_CPU: Final = "submit one by one, CPU"
BULK: Final = "submit_many"
BULK_CPU: Final = "submit_many, CPU per job"
AT_ONCE: Final = "submit, 100 callers"
PICK_UP: Final = "pick-up, p50"

UNITS: Final = {
    DRAIN: "jobs/s",
    DRAIN_CPU: "µs",
    SINGLE: "µs",
    SINGLE_CPU: "µs",
    BULK: "jobs/s",
    BULK_CPU: "µs",
    AT_ONCE: "jobs/s",
    PICK_UP: "ms",
}
_RATE: Final = "jobs/s"
_WORSE: Final = 0.95

# In this order: a drain takes what was submitted before.
PARTS: Final = ("one by one", "at once", "in bulk", "drain", "pick-up")

Figures = dict[str, float]
Verdict = Literal["slower", "faster", ""]


class Compared(NamedTuple):
    """One figure of both trees. The values of one pair of processes stand at the same place."""

    engine: str
    name: str
    this: Sequence[float]
    base: Sequence[float]

    @property
    def speeds(self) -> list[float]:
        """How fast this tree is, times BASE, in each pair: under 1 is slower for every unit."""
        pairs = zip(self.this, self.base, strict=True)
        if UNITS[self.name] == _RATE:
            return [this / base for this, base in pairs]
        return [base / this for this, base in pairs]

    @property
    def verdict(self) -> Verdict:
        """Noise is not slower: the median must be worse than 0.95, and all pairs must agree."""
        speed = median(self.speeds)
        if speed < _WORSE and max(self.speeds) < 1:
            return "slower"
        if speed > 1 / _WORSE and min(self.speeds) > 1:
            return "faster"
        return ""


def best_of(turns: Sequence[Figures]) -> Figures:
    """The best that a process reached: what else the machine did only ever made it slower."""
    return {
        name: (max if unit == _RATE else min)(turn[name] for turn in turns)
        for name, unit in UNITS.items()
    }


def compared(engine: str, pairs: Sequence[tuple[Figures, Figures]]) -> list[Compared]:
    """Every figure, of pairs of this tree and BASE."""
    return [
        Compared(engine, name, [this[name] for this, _ in pairs], [base[name] for _, base in pairs])
        for name in UNITS
    ]
