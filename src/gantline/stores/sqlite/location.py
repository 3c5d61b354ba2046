"""Where the database file is: the URL, its options, and which paths are refused."""

import os
import sqlite3
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from gantline.contract.errors import StoreMisconfigured
from gantline.stores.url_options import read_bool

MINIMUM_VERSION: Final = (3, 37, 0)  # STRICT tables

# SQLite's locks and its shared memory do not work across machines, whatever a mount promises.
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda"),
        *("9p", "prl_fs", "vboxsf"),
        *("ceph", "lustre", "glusterfs", "beegfs", "gpfs", "ocfs2", "gfs2", "davfs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs"),
        *("fuse.ceph", "fuse.rclone", "fuse.davfs2", "fuse.blobfuse2"),
    )
)
_LONGEST_BUSY_SECONDS: Final = 600
_EXAMPLE: Final = "Use sqlite:///gantline.db (relative) or sqlite:////var/lib/app/gantline.db."


class Location(msgspec.Struct, frozen=True):
    """A database file and how it is written."""

    path: Path
    sync: Literal["full", "normal"] = "full"
    busy_seconds: float = 10.0
    auto_migrate: bool = True
    """Whether opening it makes the file and the schema, or brings an older one up to date."""


def parse_url(url: str) -> Location:
    """Read sqlite:///relative/path or sqlite:////absolute/path, with ?sync=, ?busy_seconds= and
    ?auto_migrate=."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path in ("/", "/:memory:") or "\0" in path:
        raise StoreMisconfigured(
            f"{url[:200]!r} names no database file.",
            next_step=f"{_EXAMPLE} For a store without a file use memory://.",
        )
    if parts.fragment:
        raise StoreMisconfigured(
            "A # in a store URL starts a fragment.", next_step="Write it as %23."
        )
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    _refuse_unknown(options)
    given = {**options, "path": Path(path[1:]), "auto_migrate": read_bool(options, "auto_migrate")}
    try:
        location = msgspec.convert(given, Location, strict=False)
    except msgspec.ValidationError as error:
        raise StoreMisconfigured(f"A store option is wrong: {error}.") from None
    if not 0 <= location.busy_seconds <= _LONGEST_BUSY_SECONDS:
        raise StoreMisconfigured(
            f"busy_seconds is {location.busy_seconds:g}.",
            next_step=f"It must be from 0 to {_LONGEST_BUSY_SECONDS}.",
        )
    return location


def check_location(location: Location, *, mounts: str | None = None) -> None:
    """Refuse what cannot work, with a clear reason, before SQLite refuses it without one."""
    if sqlite3.sqlite_version_info < MINIMUM_VERSION:
        minimum = ".".join(map(str, MINIMUM_VERSION))
        raise StoreMisconfigured(
            f"This Python has SQLite {sqlite3.sqlite_version}; {minimum} is needed.",
            next_step="Use a newer Python build, or another store.",
        )
    path = location.path.absolute()
    try:
        path.exists()
    except OSError as error:
        raise StoreMisconfigured(f"The path of the database cannot be used: {error}.") from None
    if path.is_dir():
        raise StoreMisconfigured(f"{path} is a folder, not a file.", next_step=_EXAMPLE)
    if not path.parent.is_dir():
        raise StoreMisconfigured(
            f"The folder {path.parent} does not exist.", next_step="Create it, then try again."
        )
    kind = file_system_of(path.parent, _read_mounts() if mounts is None else mounts)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreMisconfigured(
            f"{path} is on a network file system ({kind}), where SQLite cannot lock safely.",
            next_step="Put the file on a local disk, or use PostgreSQL.",
        )
    blocked = path if path.exists() else path.parent
    if not os.access(blocked, os.W_OK) or not os.access(path.parent, os.W_OK):
        raise StoreMisconfigured(
            f"{blocked} cannot be written by this user.",
            next_step="Give the user write access to the file and to its folder.",
        )


def file_system_of(folder: Path, mounts: str) -> str:
    """Find the kind of file system of a folder in /proc/self/mounts; '' if unknown."""
    folder = folder.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mounted = Path(fields[1].replace("\\040", " "))
        # The longest mount point wins; of equal ones the later line, which hides the earlier.
        if folder.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), fields[2]
    return kind


def _read_mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux: nothing is known, so nothing is refused


def _refuse_unknown(options: dict[str, str]) -> None:
    if "schema" in options:
        raise StoreMisconfigured(
            "A SQLite store has no option schema: a file is one.",
            next_step="For other tables name another file.",
        )
    if unknown := options.keys() - {"sync", "busy_seconds", "auto_migrate"}:
        raise StoreMisconfigured(
            f"A SQLite store has no option {', '.join(sorted(unknown))}.",
            next_step="It has sync=full|normal, busy_seconds=<seconds> and auto_migrate=yes|no.",
        )
