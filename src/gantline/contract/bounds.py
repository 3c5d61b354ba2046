"""Bounds of settings: a value outside is refused where it is set; the error says the bounds."""

from datetime import timedelta
from typing import Any, Final

from gantline.contract.errors import InvalidInput

NO_TIME: Final = timedelta(0)
SHORTEST: Final = timedelta(milliseconds=1)
"""For settings that must not be zero."""
LONGEST: Final = timedelta(days=36_500)


def check_span(
    name: str,
    value: Any,
    *,
    least: timedelta = NO_TIME,
    most: timedelta = LONGEST,
    or_none: bool = False,
) -> None:
    """Raise InvalidInput unless it is a timedelta within its bounds."""
    is_good = isinstance(value, timedelta) and least <= value <= most
    if not is_good and not (or_none and value is None):
        shown = _in_words(value) if isinstance(value, timedelta) else repr(value)
        bounds = f"from {_in_words(least)} to {_in_words(most)}"
        raise InvalidInput(f"{name} is {shown}.", next_step=f"It must be a timedelta {bounds}.")


def check_count(name: str, value: Any, *, least: int = 1, or_none: bool = False) -> None:
    """Raise InvalidInput unless it is a whole number that is large enough."""
    is_good = type(value) is int and value >= least
    if not is_good and not (or_none and value is None):
        next_step = f"It must be a whole number, {least} or more."
        raise InvalidInput(f"{name} is {value!r}.", next_step=next_step)


def _in_words(span: timedelta) -> str:
    days = span / timedelta(days=1)
    return f"{days:g} days" if abs(days) >= 1 else f"{span.total_seconds():g} s"
