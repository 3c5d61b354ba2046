"""The wake-up port: telling workers, here or elsewhere, that there may be something to do."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol


class Hint(Enum):
    """What there may be to do."""

    WORK = b"w"
    """Jobs may be due."""
    CANCEL = b"c"
    """A running job may have been cancelled."""


OnHint = Callable[[Hint], None]


class Wakeup(Protocol):
    """Carries a hint between processes. It may be lost or come for nothing: workers poll too."""

    async def open(self, on_hint: OnHint | None) -> None:
        """Start listening, if given something to call; it is called in the caller's event loop."""
        ...

    def notify(self, hint: Hint = Hint.WORK) -> None:
        """Tell everybody, this process included. Never blocks and never raises."""
        ...

    async def close(self) -> None: ...
