"""Where the jobs are: what a postgresql:// URL says about the server, the schema and our ways."""

import re
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from windlass.contract.errors import StoreMisconfigured

DEFAULT_SCHEMA: Final = "windlass"
# PostgreSQL names have 63 bytes, and `<schema>.wake` must be one.
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,57}")
_OURS: Final = frozenset({"schema", "prepare", "connections", "auto_migrate", "deadline", "wakeup"})
_TRUTHS: Final = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """A server and a schema in it.

    `prepare` False sends no prepared statements, for a pooler that cannot follow them.
    `connections` bounds those of one event loop; two more are reserved for leases and leadership.
    `wakeup` False does without LISTEN, for a pooler in transaction mode, where it cannot work.
    `deadline` is how long a verb may take, with all its attempts.
    """

    conninfo: str
    schema: str = DEFAULT_SCHEMA
    prepare: bool = True
    connections: int = 10
    auto_migrate: bool = True
    deadline: timedelta = timedelta(seconds=30)
    wakeup: bool = True

    def sql(self, text: str) -> bytes:
        """Our statements name the schema `windlass`; say them of this one."""
        return text.replace("windlass.", f"{self.schema}.").encode()


def parse_url(url: str) -> Location:
    """Read a URL; what is not ours goes to the driver (sslmode, connect_timeout …)."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {name: value for name, value in options.items() if name in _OURS}
    rest = urlencode({name: value for name, value in options.items() if name not in _OURS})
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, rest, parts.fragment))
    schema = ours.get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise StoreMisconfigured(
            f"{schema!r} cannot be the schema of the jobs.",
            next_step="Use up to 58 lower-case letters, digits and underscores.",
        )
    return Location(
        conninfo=conninfo,
        schema=schema,
        prepare=_truth(ours, "prepare"),
        auto_migrate=_truth(ours, "auto_migrate"),
        wakeup=_truth(ours, "wakeup"),
        connections=int(_number(ours, "connections", 10, least=2)),
        deadline=timedelta(seconds=_number(ours, "deadline", 30, least=0.1)),
    )


def _truth(options: dict[str, str], name: str) -> bool:
    text = options.get(name, "true").lower()
    if text not in _TRUTHS:
        raise StoreMisconfigured(
            f"{name}={text} in the store URL is neither true nor false.",
            next_step=f"Write {name}=true or {name}=false.",
        )
    return _TRUTHS[text]


def _number(options: dict[str, str], name: str, default: float, *, least: float) -> float:
    text = options.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < 100_000:
        raise StoreMisconfigured(
            f"{name}={text} in the store URL is not a number from {least:g} on.",
            next_step=f"Write {name}={default:g}, or leave it out.",
        )
    return value
