"""How mutants are written by hand: slips in the texts of a store, where no tool reaches."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.mutants.mutant import Mutant, Part
from tests.seeded_bugs.breaking import lua, sql_function, text
from tests.seeded_bugs.bug import Breakage


class Slip(NamedTuple):
    """`what` happens where `new` stands instead of `old`."""

    what: str
    old: str
    new: str
    equivalent: str = ""
    """Why nobody can notice it, where that is so."""


def in_function(
    name: str, topics: tuple[str, ...], *slips: Slip, tests: tuple[str, ...] = ()
) -> Iterator[Mutant]:
    """Slips in a function of the PostgreSQL schema."""
    put_in = partial(sql_function, name)
    return _mutants("postgres by hand", name, topics, slips, put_in=put_in, tests=tests)


def in_statement(name: str, topics: tuple[str, ...], *slips: Slip) -> Iterator[Mutant]:
    """Slips in a statement, named `module:NAME`, of the PostgreSQL store."""
    put_in = partial(text, f"gantline.stores.postgres.{name}")
    return _mutants("postgres by hand", name, topics, slips, put_in=put_in)


def in_script(name: str, topics: tuple[str, ...], *slips: Slip) -> Iterator[Mutant]:
    """Slips in a script of Redis."""
    return _mutants("redis by hand", name, topics, slips, put_in=partial(lua, name))


def _mutants(
    part: Part,
    where: str,
    topics: tuple[str, ...],
    slips: tuple[Slip, ...],
    *,
    put_in: Callable[[str, str], Breakage],
    tests: tuple[str, ...] = (),
) -> Iterator[Mutant]:
    """Make the mutants of one text. `tests`, then the rules of `topics`, are tried first."""
    for slip in slips:
        yield Mutant(
            name=f"{part.split()[0]} {where}: {slip.what}",
            part=part,
            change=" ".join(f"{slip.old}  ->  {slip.new}".split()),
            make=partial(put_in, slip.old, slip.new),
            equivalent=slip.equivalent,
            topics=topics,
            tests=tests,
        )
