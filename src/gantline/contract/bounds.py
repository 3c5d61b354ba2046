"""Bounds of settings: what is out of them is refused where it is set, with what would do.

None is good: only what may be left out can be None.
"""

from datetime import timedelta
from typing import Any, Final

from gantline.contract.errors import InvalidInput

NO_TIME: Final = timedelta(0)
SHORTEST: Final = timedelta(milliseconds=1)
"""Of what must take some time."""
LONGEST: Final = timedelta(days=36_500)


def check_span(
    name: str, value: Any, *, least: timedelta = NO_TIME, most: timedelta = LONGEST
) -> None:
    """Raise InvalidInput unless it is a timedelta within its bounds."""
    if value is not None and not (isinstance(value, timedelta) and least <= value <= most):
        told = value if isinstance(value, timedelta) else repr(value)
        bounds = f"from {_in_words(least)} to {_in_words(most)}"
        raise InvalidInput(f"{name} is {told}.", next_step=f"It must be a timedelta {bounds}.")


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise InvalidInput unless it is a whole number that is large enough."""
    if value is not None and not (type(value) is int and value >= least):
        next_step = f"It must be a whole number, {least} or more."
        raise InvalidInput(f"{name} is {value!r}.", next_step=next_step)


def _in_words(span: timedelta) -> str:
    return f"{span.days} days" if span.days else f"{span.total_seconds():g} s"
