"""The lock of a session: how another process of the host knows at once that a worker has ended.

A worker holds a lock of the kernel on a file of its own for as long as its process lives. Being
able to take that lock proves that the process is gone, however it ended; one that is frozen or
cut off still holds it. The file names the boot of the kernel that keeps the lock: on a shared disk
the files of other hosts prove nothing. Where no such file can be made, leases run out as usual.
"""

import logging
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final

from gantline.runtime import boot_id

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger("gantline.worker")

_OLD_SECONDS: Final = 7 * 86_400.0


class SessionLock:
    """The lock of this session, and the looking at those of others on the same store."""

    def __init__(self, store_id: str, session: str, *, folder: Path | None = None) -> None:
        self._prefix = f"{store_id}."
        self._session = session
        self._folder = folder or _default_folder()
        self._file: int | None = None
        self._boot = boot_id()

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._prefix}{self._session}"

    def take(self) -> None:
        """Take the lock, before the file has its name: nobody may find it free."""
        if sys.platform == "win32" or not self._boot:
            return
        being_made = self._path.with_name(f".{self._path.name}")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.stat().st_uid != os.getuid():
                raise OSError(f"{self._folder} belongs to somebody else")
            self._file = os.open(being_made, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._file, self._proof(self._file))
            being_made.rename(self._path)
            self._remove_old()
        except OSError as error:
            _log.warning(
                "no lock for this session, so a crash is seen by its lease alone: %s", error
            )
            self.release()

    def release(self) -> None:
        """Give the lock back; to be called when the session holds no runs any more."""
        if self._file is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def ended(self) -> list[str]:
        """The sessions of this store on this host whose process is gone."""
        if self._file is None:  # then this is no folder to believe
            return []
        with suppress(OSError):
            names = [name for name in os.listdir(self._folder) if name.startswith(self._prefix)]
            sessions = [name.removeprefix(self._prefix) for name in names if self._is_free(name)]
            return [session for session in sessions if session != self._session]
        return []

    def _remove_old(self) -> None:
        """Files that nobody will ask for any more, of whatever store."""
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # workers that start now rename theirs
                if path.stat().st_mtime < time() - _OLD_SECONDS and self._is_free(path.name):
                    path.unlink(missing_ok=True)

    def _proof(self, file: int) -> bytes:
        """What a file holds whose lock proves something: the kernel's boot, and its own number."""
        return b"%s %d" % (self._boot, os.fstat(file).st_ino)

    def forget(self, session: str) -> None:
        """Remove the file of an ended session."""
        with suppress(OSError):
            (self._folder / f"{self._prefix}{session}").unlink(missing_ok=True)

    def _is_free(self, name: str) -> bool:
        """Try to take a lock; it is given back at once."""
        try:
            file = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # its session has just ended well, or it is nobody's lock
            return False
        try:
            if sys.platform == "win32" or os.read(file, 128) != self._proof(file):
                return False  # of another host, from before a restart, or a copy: no proof
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a process has the lock, or it cannot be read
            return False
        finally:
            os.close(file)
        return True


def _default_folder() -> Path:
    """Of this user alone; another user's processes could not be trusted to say the truth."""
    user = "" if sys.platform == "win32" else f"-{os.getuid()}"
    try:
        return Path(tempfile.gettempdir()) / f"gantline{user}"
    except FileNotFoundError:  # no folder can be written to; `take` says so
        return Path(f"gantline{user}")
