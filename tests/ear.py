"""Ears for tests: what a wake-up brings and what the log says, to be waited for."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from gantline.contract.wakeup import Hint
from gantline.wakeups.remote import RemoteWakeup

PATIENCE_SECONDS = 60


def is_up(wakeup: RemoteWakeup) -> bool:
    """Asked anew each time: mypy takes an attribute for what it was before."""
    return wakeup.is_connected


class Ear:
    """Hears hints, one after the other."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[Hint] = asyncio.Queue()

    def __call__(self, hint: Hint) -> None:
        self._heard.put_nowait(hint)

    async def hears(self) -> Hint:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._heard.get()

    async def hears_work(self) -> None:
        """That there is work, whatever else."""
        while await self.hears() is not Hint.WORK:
            pass

    async def hears_all(self) -> None:
        """Every kind of hint, as after each connect."""
        assert [await self.hears() for _ in Hint] == list(Hint)

    def forget(self) -> None:
        """Leave out what was heard until now."""
        while self.has_more:
            self._heard.get_nowait()

    @property
    def has_more(self) -> bool:
        return not self._heard.empty()


@asynccontextmanager
async def opened(wakeup: RemoteWakeup) -> AsyncIterator[RemoteWakeup]:
    """For who only tells."""
    await wakeup.open(None)
    try:
        yield wakeup
    finally:
        await wakeup.close()


@asynccontextmanager
async def overheard(wakeup: RemoteWakeup) -> AsyncIterator[tuple[RemoteWakeup, Ear]]:
    """A wake-up that listens already."""
    ear = Ear()
    await wakeup.open(ear)
    try:
        await ear.hears_all()
        yield wakeup, ear
    finally:
        await wakeup.close()


class LogEar(logging.Handler):
    """Hears what one logger says, from whatever thread."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[logging.LogRecord] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._loop.call_soon_threadsafe(self._lines.put_nowait, record)

    async def hears(self, level: int) -> str:
        """The next line, which has to be of this level."""
        record = await self._next()
        assert record.levelno == level, record.getMessage()
        return record.getMessage()

    async def hears_something(self) -> str:
        return (await self._next()).getMessage()

    def all(self) -> list[str]:
        """All lines that nobody has heard yet."""
        return [self._lines.get_nowait().getMessage() for _ in range(self._lines.qsize())]

    async def _next(self) -> logging.LogRecord:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._lines.get()

    @property
    def has_more(self) -> bool:
        return not self._lines.empty()


@contextmanager
def log_ear(name: str = "gantline.wakeup") -> Iterator[LogEar]:
    logger, ear = logging.getLogger(name), LogEar()
    level = logger.level
    logger.addHandler(ear)
    logger.setLevel(logging.INFO)
    try:
        yield ear
    finally:
        logger.removeHandler(ear)
        logger.setLevel(level)
