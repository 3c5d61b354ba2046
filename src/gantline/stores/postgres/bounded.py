"""Bounded: a context whose beginning and end have a deadline each; what is between has none."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TypeVar

T_co = TypeVar("T_co", covariant=True)


class Bounded(AbstractAsyncContextManager[T_co]):
    """Enter and leave another context, or raise `too_late`."""

    def __init__(
        self,
        inner: AbstractAsyncContextManager[T_co],
        *,
        seconds: float,
        too_late: Callable[[], Exception],
    ) -> None:
        self._inner = inner
        self._seconds = seconds
        self._too_late = too_late

    async def __aenter__(self) -> T_co:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.__aenter__()
        except TimeoutError:
            raise self._too_late() from None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._inner.__aexit__(kind, error, trace)
        except TimeoutError:
            if error is None:
                raise self._too_late() from None
            return None  # what was raised in the block tells more
