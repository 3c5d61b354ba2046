"""The store under proof: where its server is, and whether it is empty."""

import os
from pathlib import Path
from shutil import rmtree
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.store import JobStore
from gantline.contract.stored import Part, Stored, StoredRecord
from gantline.manager.sessions import live_sessions
from gantline.proving.proxy import HOST

_PORTS: Final = {"postgres": 5432, "postgresql": 5432, "redis": 6379, "valkey": 6379}
_OVER_TLS: Final = frozenset({"rediss", "valkeys"})
# So that a server with its usual limits takes the connections of all processes.
_CONNECTIONS: Final = "3"
_STORE_ID: Final = "store"
SCHEMA_LEFT: Final = "The store is empty again; its schema is left."
_PARTS: Final = (Part.JOBS, Part.KEYS, Part.RECORDS)


class Route(msgspec.Struct, frozen=True):
    """How processes reach the store: by a proxy, or where none can stand, why."""

    url: str
    host: str = ""
    port: int = 0
    why_none: str = ""

    @property
    def has_proxy(self) -> bool:
        return not self.why_none

    def through(self, port: int) -> str:
        """The URL by which the server is reached through a proxy at this port."""
        parts = urlsplit(self.url)
        login, at, _ = parts.netloc.rpartition("@")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        options.setdefault("connections", _CONNECTIONS)
        host = HOST
        if parts.scheme.startswith("postgres"):
            # The driver still knows the name, which the certificate of the server is for.
            options["hostaddr"] = HOST
            host = f"[{self.host}]" if ":" in self.host else self.host
        query = urlencode(options, quote_via=quote)
        netloc = f"{login}{at}{host}:{port}"
        return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


def find_route(url: str) -> Route:
    """See where the server of a store is. A relative path to a file becomes an absolute one."""
    parts = urlsplit(url)
    scheme, _, way = parts.scheme.partition("+")
    if scheme == "sqlite":
        return Route(_with_absolute_path(parts), why_none="a file has no connections")
    if why := _why_none(parts, scheme, way):
        return Route(url, why_none=why)
    return Route(url, parts.hostname or "", parts.port or _PORTS[scheme])


def _why_none(parts: SplitResult, scheme: str, way: str) -> str:
    if scheme in _OVER_TLS:
        return "it is reached over TLS, whose certificate is not one for a proxy"
    if scheme not in _PORTS:
        return f"how a {scheme} server is reached is not known"
    if way == "cluster" or "," in parts.netloc:
        return "it has several servers"
    if way == "unix" or not parts.hostname:
        return "its URL names no host"
    options = dict(parse_qsl(parts.query))
    if taken := sorted({"host", "hostaddr", "port", "service"} & options.keys()):
        return f"its URL has the option {taken[0]}"
    return ""


def _with_absolute_path(parts: SplitResult) -> str:
    path = parts.path
    if path.startswith("/") and not path.startswith("//"):
        path = "/" + quote(os.path.abspath("")) + path
    return f"sqlite://{path}" + (f"?{parts.query}" if parts.query else "")


async def refuse_unless_empty(store: JobStore, label: str) -> None:
    """Raise InvalidInput where a store holds anything, or a worker runs on it."""
    if store.capabilities.writers == "process":
        raise InvalidInput(
            f"{label} lives in one process, so no other can be killed on it.",
            next_step="Name a store that several processes can open.",
        )
    if await live_sessions(store):
        raise InvalidInput(f"A worker runs on {label}.", next_step="Name a store that nobody uses.")
    for part in _PARTS:
        page = await store.dump(part, limit=10)
        if any(map(_is_content, page.items)):
            raise InvalidInput(
                f"{label} holds {part} already, and a proof removes everything at its end.",
                next_step="Name an empty one: a new file, ?schema=… or ?prefix=….",
            )


def _is_content(item: Stored) -> bool:
    """The id that the first worker gave the store is none of anybody's."""
    return not (isinstance(item, StoredRecord) and item.record.namespace == _STORE_ID)


def remove_file(file: Path) -> str:
    """Remove a SQLite file that the proof has made; say so."""
    for left in (file, *(Path(f"{file}{suffix}") for suffix in ("-wal", "-shm"))):
        left.unlink(missing_ok=True)
    rmtree(f"{file}-wake", ignore_errors=True)  # sockets of processes that were killed
    return "The file that the proof has made is removed."
