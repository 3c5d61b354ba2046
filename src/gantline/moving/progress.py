"""How far a copy is, for whoever watches it."""

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """How far a copy is; `of` is None where nobody knows."""

    doing: str
    done: int = 0
    of: int | None = None


Tell = Callable[[Progress], None]
