"""The numberer: has events numbered soon after the runs that made them were settled.

Whoever leads the maintenance does that as well, for workers that died in between; several at once
do no harm.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from gantline.contract.store import JobStore
from gantline.manager.sequencer import Sequencer

_log = logging.getLogger("gantline.worker")

_PAUSE_SECONDS: Final = 0.15
# A store that is away must not hold up a worker that stops.
_LAST_TIME_SECONDS: Final = 2.0


class Numberer:
    """Quiet, number at once; busy, a few times a second. Idle, ask nothing."""

    def __init__(self, store: JobStore, *, told: Callable[[], None]) -> None:
        """`told` is called when there are new numbers."""
        self._sequencer = Sequencer(store)
        self._is_needed = store.capabilities.event_lag > timedelta(0)
        self._told = told
        self._is_asked = False
        self._numbering: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """There may be events without a number. Costs nothing where the store numbers itself."""
        if not self._is_needed:
            return
        self._is_asked = True
        if self._numbering is None:
            self._numbering = asyncio.create_task(self._number_while_asked())

    async def finish(self) -> None:
        """Number what is left, and ask nothing more."""
        self._is_needed = False
        numbering, self._numbering = self._numbering, None
        if numbering is not None:
            numbering.cancel()
            await asyncio.gather(numbering, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_TIME_SECONDS):
                    await self._number()

    async def _number_while_asked(self) -> None:
        while self._is_asked:
            self._is_asked = False
            await self._number()
            await asyncio.sleep(_PAUSE_SECONDS)
        self._numbering = None

    async def _number(self) -> None:
        try:
            numbered = await self._sequencer.run_once()
        except Exception as error:
            _log.warning("could not number events, leaving it to whoever leads: %s", error)
            return
        if numbered:
            self._told()
