"""Names of queues and types that are typed in: whether they can be, and whether they are known."""

from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from gantline.cli.output import say
from gantline.contract.errors import InvalidInput
from gantline.contract.text import name_problem

Kind = Literal["queue", "type"]
_MOST_SHOWN = 10


def check_name(kind: Kind, name: str) -> None:
    """Raise InvalidInput for what can be no name."""
    if not name or (problem := name_problem(name, 128)):
        raise InvalidInput(f"{name[:64]!r} is not a {kind}: it {problem if name else 'is empty'}.")


class Known(NamedTuple):
    """Names of queues or types: those that jobs have, and those that workers serve, if known."""

    seen: frozenset[str]
    served: frozenset[str] | None


def say_if_unseen(kind: Kind, name: str, known: Known) -> None:
    """A switch may be thrown before the first job comes; but it may be a typing error too."""
    if name in known.seen:
        return
    names = _names(kind, known.seen | (known.served or frozenset()))
    if known.served is None:
        say(f"There is no job of the {kind} {name!r} that can be seen here. {names}")
        return
    whom = "a worker serves it" if name in known.served else "no worker serves it"
    say(f"There is no job of the {kind} {name!r} in the store, and {whom}. {names}")


def _names(kind: Kind, names: AbstractSet[str]) -> str:
    if not names:
        return f"No {kind} is known yet."
    shown = sorted(names)[:_MOST_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"Known are {', '.join(shown)}{more}."
