"""The type of every option that is a span of time with a unit: 90d, 12h, 30m, 45s."""

import re
from datetime import timedelta
from typing import Final

import click

_SPAN: Final = re.compile(r"(\d{1,6})([dhms])", re.ASCII)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def span(text: str) -> timedelta:
    """Read a whole number and its unit."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no span of time; write 90d, 12h, 30m or 45s.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
