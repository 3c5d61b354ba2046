"""What became of the mutants, as it is kept as data."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.mutants.killing import Result
from tests.mutants.mutant import BY_HAND, Mutant

RESULTS: Final = Path(__file__).with_name("results.json")
LEAST_SHARE: Final = 0.9
"""Of the mutants of each part that can be noticed, so many are killed."""


class Total(NamedTuple):
    killed: int
    survived: int
    equivalent: int

    @property
    def share_killed(self) -> float:
        """Of those that can be noticed."""
        return self.killed / (self.killed + self.survived) if self.killed + self.survived else 1.0

    def __str__(self) -> str:
        return (
            f"{self.killed} killed, {self.survived} survived, {self.equivalent} equivalent: "
            f"{self.share_killed:.1%}"
        )


def read_results(mutants: dict[str, Mutant]) -> dict[str, Result]:
    """Those of mutants that are still the same."""
    if not RESULTS.exists():
        return {}
    known = msgspec.json.decode(RESULTS.read_bytes(), type=list[Result])
    return {
        one.mutant: msgspec.structs.replace(
            one, equivalent="" if one.is_killed else mutants[one.mutant].equivalent
        )
        for one in known
        if one.mutant in mutants and mutants[one.mutant].change == one.change
    }


def write_results(known: dict[str, Result], mutants: dict[str, Mutant]) -> None:
    lines = [msgspec.json.encode(known[name]).decode() for name in mutants if name in known]
    RESULTS.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def total(results: Iterable[Result]) -> Total:
    results = list(results)
    killed = sum(one.is_killed for one in results)
    equivalent = sum(bool(one.equivalent) for one in results)
    return Total(killed, len(results) - killed - equivalent, equivalent)


def totals(results: Iterable[Result]) -> dict[str, Total]:
    """Of each part, then of those that are generated and those that are written by hand."""
    results = list(results)
    parts = dict.fromkeys(one.part for one in results)
    found = {part: total(one for one in results if one.part == part) for part in parts}
    found["generated"] = total(one for one in results if one.part not in BY_HAND)
    found["by hand"] = total(one for one in results if one.part in BY_HAND)
    return found
