"""Extras: what is imported only by those who use it is missed with a word on how to get it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports that need the extra of this name."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise ModuleNotFoundError(
            f"This needs the module {missing}, which is not installed. "
            f"Run `pip install 'gantline[{name}]'`.",
            name=error.name,
        ) from None
