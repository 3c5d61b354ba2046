"""Where the jobs are: the servers, the prefix and the options of a redis:// URL."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from gantline.contract.errors import StoreMisconfigured
from gantline.stores.url_options import (
    check_names,
    is_unambiguous,
    read_bool,
    read_number,
    unreadable,
)

DEFAULT_PREFIX: Final = "gantline"
DEFAULT_PORT: Final = 6379
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_SCHEMES: Final = frozenset({"redis", "valkey", "rediss", "valkeys"})
_OVER_TLS: Final = frozenset({"rediss", "valkeys"})
_WAYS: Final = frozenset({"", "cluster", "unix"})
_TLS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_EXAMPLE: Final = "redis://user:password@host:6379/0"
_OURS: Final = frozenset(
    {"prefix", "durability", "replicas", "deadline", "connections", "wakeup", "db", *_TLS}
)


class Node(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Servers, and a prefix in them.

    Of several `nodes` one is used, the first that takes writes; of a cluster, the one that has the
    slot of the prefix. `replicas` is how many of them must have a write before it is confirmed.
    `connections` bounds those of one event loop; one more is reserved for leases and leadership.
    `deadline` is how long a verb may take, with all its attempts.
    """

    nodes: tuple[Node, ...]
    socket: Path | None = None
    cluster: bool = False
    tls: dict[str, str] | None = None
    username: str | None = None
    password: str | None = None
    database: int = 0
    prefix: str = DEFAULT_PREFIX
    replicas: int = 0
    connections: int = 10
    deadline: timedelta = timedelta(seconds=30)
    wakeup: bool = True

    def __repr__(self) -> str:
        """Without the password."""
        return f"<Location with prefix {self.prefix!r}>"

    @property
    def tag(self) -> bytes:
        """The start of every key; the braces keep all keys in one slot."""
        return f"{{{self.prefix}}}".encode()

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the servers for the driver, with secrets."""
        user, password = quote(self.username or "", safe=""), quote(self.password or "", safe="")
        login = f"{user}:{password}@" if user or password else ""
        if self.socket is not None:
            return (f"unix://{login}{quote(str(self.socket))}?db={self.database}",)
        scheme = "redis" if self.tls is None else "rediss"
        query = f"?{urlencode(self.tls)}" if self.tls else ""
        hosts = (f"[{node.host}]" if ":" in node.host else node.host for node in self.nodes)
        return tuple(
            f"{scheme}://{login}{host}:{node.port}/{self.database}{query}"
            for host, node in zip(hosts, self.nodes, strict=True)
        )


def parse_url(url: str) -> Location:
    """Read redis[s][+cluster|+unix]://[user:password@]host[:port][,host…][/database][?options]."""
    parts = urlsplit(url)
    scheme, _, way = parts.scheme.partition("+")
    if scheme not in _SCHEMES or way not in _WAYS or not is_unambiguous(parts):
        raise unreadable(_EXAMPLE)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    next_step = f"Use one of {', '.join(sorted(_OURS))}."
    check_names(options, _OURS, example=_EXAMPLE, next_step=next_step)
    return Location(
        nodes=() if way == "unix" else _read_nodes(parts),
        socket=Path(unquote(parts.path)) if way == "unix" else None,
        cluster=way == "cluster",
        tls=_read_tls(options) if scheme in _OVER_TLS else None,
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        database=_read_database(options.get("db", "") if way == "unix" else parts.path[1:], way),
        prefix=_read_prefix(options),
        replicas=_read_replicas(options),
        connections=int(read_number(options, "connections", 10, least=1)),
        deadline=timedelta(seconds=read_number(options, "deadline", 30, least=0.1)),
        wakeup=read_bool(options, "wakeup"),
    )


def _read_tls(options: dict[str, str]) -> dict[str, str]:
    return {name: options[name] for name in _TLS if name in options}


def _read_nodes(parts: SplitResult) -> tuple[Node, ...]:
    hosts = parts.netloc.rpartition("@")[2] or "localhost"
    return tuple(map(_read_node, hosts.split(",")))


def _read_node(text: str) -> Node:
    try:
        parts = urlsplit(f"//{text}")
        node = Node(parts.hostname or "", parts.port or DEFAULT_PORT)
    except ValueError:
        raise unreadable(_EXAMPLE) from None
    if not node.host or parts.path:
        raise unreadable(_EXAMPLE)
    return node


def _read_database(text: str, way: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise unreadable(_EXAMPLE)
    if way == "cluster" and int(text):
        raise StoreMisconfigured(
            "A cluster has no databases.", next_step="Leave out the number after the slash."
        )
    return int(text)


def _read_prefix(options: dict[str, str]) -> str:
    prefix = options.get("prefix", DEFAULT_PREFIX)
    if not _PREFIX.fullmatch(prefix):
        raise StoreMisconfigured(
            f"{prefix!r} cannot be the prefix of the jobs.",
            next_step="Use up to 64 letters, digits and any of _ . : -",
        )
    return prefix


def _read_replicas(options: dict[str, str]) -> int:
    """Read how many replicas to wait for; 0 by default."""
    durability = options.get("durability")
    if durability not in (None, "replicated"):
        raise StoreMisconfigured(
            f"durability={durability} cannot be asked of the server.",
            next_step="Write durability=replicated, or leave it out: the rest is the server's "
            "configuration (appendonly, appendfsync).",
        )
    if durability is None:
        if "replicas" in options:
            raise StoreMisconfigured(
                "replicas=… in the store URL means nothing by itself.",
                next_step="Write durability=replicated as well.",
            )
        return 0
    return int(read_number(options, "replicas", 1, least=1))
