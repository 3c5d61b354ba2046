"""Wake-ups between the processes of one host: datagrams to sockets beside the database file.

Every listener binds a socket of its own in a folder next to the file; whoever notifies sends one
byte to each socket there. A datagram to a dead listener fails at once, and its socket is removed.
"""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from gantline.contract.wakeup import Hint, OnHint

# The kernel's limit on the path of a Unix socket is 108 bytes, its end included.
_LONGEST_PATH: Final = 107


class LocalSocketWakeup:
    """Reach all processes that use the same database file."""

    def __init__(self, database: Path) -> None:
        self._folder = database.absolute().with_name(f"{database.name}-wake")
        self._listening: socket.socket | None = None
        self._sending: socket.socket | None = None
        self._own: Path | None = None
        self._on_hint: OnHint | None = None

    async def open(self, on_hint: OnHint | None) -> None:
        """Listen. Where a socket cannot be made, say nothing: polling goes on."""
        self._sending = _datagram_socket()
        if on_hint is None:
            return
        own = self._folder / uuid4().hex[:16]
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
        """However many hints of a kind have come: they mean one look."""
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
            # Its process is gone without having been able to tidy up.
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
