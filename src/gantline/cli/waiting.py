"""Waiting for a store that does not answer: not in silence."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from gantline.cli.output import say

NOTICE_AFTER_SECONDS = 2.0


@contextmanager
def told_when_slow(
    place: str, patience: timedelta, *, tell: Callable[[str], None] = say
) -> Iterator[None]:
    """Say after a while what is being waited for, and how long it will still be tried."""
    left = patience.total_seconds() - NOTICE_AFTER_SECONDS
    if left <= 0:
        yield
        return
    notice = f"Waiting for {place}, which does not answer; trying for {left:.0f} s more."
    timer = asyncio.get_running_loop().call_later(NOTICE_AFTER_SECONDS, tell, notice)
    try:
        yield
    finally:
        timer.cancel()
