"""Hushing the HTTP library: at DEBUG it logs what a receiver answers, cookies included."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LOGGER: Final = "httpcore2.http11"
_is_ours: Final = ContextVar("gantline_webhook_is_sent", default=False)


@contextmanager
def hushed() -> Iterator[None]:
    """Say nothing of what is sent and answered in here. Others who use the library keep its log."""
    logging.getLogger(_LOGGER).addFilter(_is_others)  # which adds it once
    before = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(before)


def _is_others(_: logging.LogRecord) -> bool:
    return not _is_ours.get()
