"""Bounds of settings: what is out of them is refused where it is set, with what would do."""

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
    if not isinstance(value, timedelta) or not least <= value <= most:
        bounds = f"from {_in_words(least)} to {_in_words(most)}"
        raise InvalidInput(
            f"{name} is {value if isinstance(value, timedelta) else repr(value)}.",
            next_step=f"It must be a timedelta {bounds}.",
        )


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise InvalidInput unless it is a whole number that is large enough."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(
            f"{name} is {value!r}.", next_step=f"It must be a whole number of {least} or more."
        )


def _in_words(span: timedelta) -> str:
    return f"{span.days} days" if span.days else f"{span.total_seconds():g} s"
