"""Wake-ups without a server: inside one process, and between the processes of one host."""

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from gantline.contract.wakeup import Hint, OnHint, Wakeup
from gantline.runtime import new_uuid


class Hub:
    """The listeners of this process."""

    def __init__(self) -> None:
        self.listeners: dict[OnHint, asyncio.AbstractEventLoop] = {}


class InProcessWakeup:
    """Notify all listeners of one hub, across the event loops of a process."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._own: OnHint | None = None

    async def open(self, on_hint: OnHint | None) -> None:
        if on_hint is not None:
            self._hub.listeners[on_hint] = asyncio.get_running_loop()
            self._own = on_hint

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        for listener, loop in list(self._hub.listeners.items()):
            with suppress(RuntimeError):  # that loop is closed: nobody listens any more
                loop.call_soon_threadsafe(listener, hint)

    @property
    def is_listening(self) -> bool:
        return False  # never from another host

    async def close(self) -> None:
        if self._own is not None:
            self._hub.listeners.pop(self._own, None)
            self._own = None


# The kernel's limit on the path of a Unix socket is 108 bytes, its end included.
_LONGEST_PATH: Final = 107


class LocalSocketWakeup:
    """Notify all processes that use the same database file.

    Every listener binds a datagram socket of its own in a folder next to the file; a notifier
    sends one byte to each socket there. A datagram to a dead listener fails at once, and its socket
    is removed.
    """

    def __init__(self, database: Path) -> None:
        self._folder = database.absolute().with_name(f"{database.name}-wake")
        self._listening: socket.socket | None = None
        self._sending: socket.socket | None = None
        self._own: Path | None = None
        self._on_hint: OnHint | None = None

    async def open(self, on_hint: OnHint | None) -> None:
        """Listen. Where no socket can be made, only polling is left, and that is no error."""
        self._sending = _datagram_socket()
        if on_hint is None:
            return
        own = self._folder / new_uuid().hex[:16]
        if len(os.fsencode(own)) > _LONGEST_PATH:
            return
        self._on_hint = on_hint
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._listening = _datagram_socket()
            self._listening.bind(str(own))
            self._own = own
            asyncio.get_running_loop().add_reader(self._listening, self._drain)

    def _drain(self) -> None:
        """Read all hints that came; each kind is passed on once."""
        if self._listening is None or self._on_hint is None:
            return
        hints: set[bytes] = set()
        with suppress(OSError):
            while hint := self._listening.recv(1):
                hints.add(hint)
        for known in Hint:
            if known.value in hints:
                self._on_hint(known)

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        if self._sending is None:
            return
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                self._send(hint, entry.path)

    def _send(self, hint: Hint, path: str) -> None:
        if self._sending is None or len(os.fsencode(path)) > _LONGEST_PATH:
            return
        try:
            self._sending.sendto(hint.value, path)
        except ConnectionRefusedError:
            # Its process has died without removing it.
            with suppress(OSError):
                os.unlink(path)
        except OSError:
            pass  # full, so it has hints enough; or just removed

    @property
    def is_listening(self) -> bool:
        return False  # never from another host

    async def close(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        if self._own is not None:
            with suppress(OSError):
                self._own.unlink()
            with suppress(OSError):
                self._folder.rmdir()  # refuses while others are in it
            self._own = None
        if self._sending is not None:
            self._sending.close()
            self._sending = None


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


class SeveralWakeups:
    """Several kinds of wake-up used as one: notify and listen through each.

    A hint that comes twice only costs one more look at the store.
    """

    def __init__(self, wakeups: Sequence[Wakeup]) -> None:
        self._wakeups = wakeups

    async def open(self, on_hint: OnHint | None) -> None:
        for wakeup in self._wakeups:
            await wakeup.open(on_hint)

    def notify(self, hint: Hint = Hint.WORK, *, job_id: UUID | None = None) -> None:
        for wakeup in self._wakeups:
            wakeup.notify(hint, job_id=job_id)

    @property
    def is_listening(self) -> bool:
        return any(wakeup.is_listening for wakeup in self._wakeups)

    async def close(self) -> None:
        for wakeup in self._wakeups:
            await wakeup.close()
