"""A mutant: where it is, what is changed, and by what it must be killed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.seeded_bugs.bug import Breakage, StoreKind

Part = Literal[
    "decide",
    "transition",
    "memory store",
    "sqlite store",
    "postgres store",
    "redis store",
    "postgres by hand",
    "redis by hand",
]
BY_HAND: Final[frozenset[Part]] = frozenset({"postgres by hand", "redis by hand"})


@dataclass(frozen=True)
class Killers:
    """What is tried on the mutants of a part: tests, then the rules of the suite on a store.

    `more` are tests that take longer, for what has survived both.
    """

    store: StoreKind
    tests: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


KILLERS: Final[dict[Part, Killers]] = {
    "decide": Killers("memory", ("tests/manager/test_decide.py",)),
    "transition": Killers("memory", ("tests/manager/test_decide.py",)),
    "memory store": Killers("memory"),
    "sqlite store": Killers("sqlite"),
    "postgres store": Killers("postgres"),
    "redis store": Killers("redis"),
    "postgres by hand": Killers("postgres"),
    "redis by hand": Killers("redis"),
}


@dataclass(frozen=True)
class Mutant:
    """`change` is the old text and the new one, on one line, for people."""

    name: str
    part: Part
    change: str
    make: Callable[[], Breakage] = field(repr=False)
    equivalent: str = ""
    """Why no test can notice it, where that is so."""
    topics: tuple[str, ...] = ()
    """Whose rules are tried first."""
