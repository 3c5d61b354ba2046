"""How a mutant is written by hand: a slip in one text of a store."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.mutants.mutant import Mutant, Part
from tests.seeded_bugs.bug import Breakage


class Slip(NamedTuple):
    """`what` happens where `new` stands instead of `old`."""

    what: str
    old: str
    new: str
    equivalent: str = ""
    """Why nobody can notice it, where that is so."""


def slips_in(
    part: Part,
    where: str,
    topics: tuple[str, ...],
    slips: tuple[Slip, ...],
    *,
    put_in: Callable[[str, str], Breakage],
) -> Iterator[Mutant]:
    """Make the mutants of one text. The rules of these topics are tried first."""
    for slip in slips:
        yield Mutant(
            name=f"{part.split()[0]} {where}: {slip.what}",
            part=part,
            change=" ".join(f"{slip.old}  ->  {slip.new}".split()),
            make=partial(put_in, slip.old, slip.new),
            equivalent=slip.equivalent,
            topics=topics,
        )
