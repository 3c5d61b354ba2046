"""Several ways to wake, used as one."""

from collections.abc import Sequence
from uuid import UUID

from gantline.contract.wakeup import Hint, OnHint, Wakeup


class SeveralWakeups:
    """Tell by every way, and listen on every way. A hint that comes twice costs one more look."""

    def __init__(self, ways: Sequence[Wakeup]) -> None:
        self._ways = ways

    async def open(self, on_hint: OnHint | None) -> None:
        for way in self._ways:
            await way.open(on_hint)

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        for way in self._ways:
            way.notify(hint, job_id=job_id)

    @property
    def is_listening(self) -> bool:
        return any(way.is_listening for way in self._ways)

    async def close(self) -> None:
        for way in self._ways:
            await way.close()
