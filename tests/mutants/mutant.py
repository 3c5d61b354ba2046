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
    "postgres by hand",
    "redis by hand",
]
BY_HAND: Final[frozenset[Part]] = frozenset({"postgres by hand", "redis by hand"})


@dataclass(frozen=True)
class Killers:
    """What is tried on the mutants of a part: tests, then the rules of the suite on a store.

    `more` are tests for what has survived both. A test is a file, or a file and a name.
    """

    store: StoreKind
    tests: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


_DECIDING: Final = ("tests/manager/test_decide.py",)
_MORE_OF_POSTGRES: Final = (
    "tests/postgres/test_claims.py",
    "tests/postgres/test_floors.py",
    "tests/postgres/test_found_by_attack.py",
    "tests/postgres/test_interleavings.py::test_claims_do_not_wait_for_each_other",
    "tests/postgres/test_numbers.py",
    "tests/postgres/test_removed_by_hand.py",
    "tests/postgres/test_transaction.py::"
    "test_a_run_that_is_being_committed_is_neither_waited_for_nor_stolen",
)
_MORE_OF_REDIS: Final = (
    "tests/redis/test_keys.py",
    "tests/redis/test_leases.py",
    "tests/redis/test_lists.py",
    "tests/redis/test_removed_by_hand.py",
    "tests/redis/test_turns.py",
)
KILLERS: Final[dict[Part, Killers]] = {
    "decide": Killers("memory", _DECIDING),
    "transition": Killers("memory", _DECIDING),
    "memory store": Killers("memory"),
    "sqlite store": Killers(
        "sqlite", more=("tests/test_sqlite_removed_by_hand.py", "tests/test_sqlite_turns.py")
    ),
    "postgres by hand": Killers("postgres", more=_MORE_OF_POSTGRES),
    "redis by hand": Killers("redis", more=_MORE_OF_REDIS),
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
    tests: tuple[str, ...] = ()
    """Tests that are tried before all others."""
