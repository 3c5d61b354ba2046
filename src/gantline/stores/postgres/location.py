"""Where the jobs are: the server, the schema and the options of a postgresql:// URL."""

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from gantline.contract.errors import StoreMisconfigured
from gantline.stores.url_options import (
    check_names,
    is_unambiguous,
    read_bool,
    read_number,
    unreadable,
)

DEFAULT_SCHEMA: Final = "gantline"
# PostgreSQL names have 63 bytes, and `<schema>.wake` must be one.
_SCHEMA_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,57}")
_EXAMPLE: Final = "postgresql://user:password@host:5432/database"
_OURS: Final = frozenset({"schema", "prepare", "connections", "auto_migrate", "deadline", "wakeup"})


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

    def __repr__(self) -> str:
        """Without the password."""
        return f"<Location with schema {self.schema!r}>"

    def sql(self, text: str) -> bytes:
        """Replace the schema `gantline`, which our statements name, by this one."""
        return _put_in_schema(text, self.schema)


@lru_cache(maxsize=1024)
def _put_in_schema(text: str, schema: str) -> bytes:
    return text.replace("gantline.", f"{schema}.").encode()


def parse_url(url: str) -> Location:
    """Read a URL; options that are not ours go to the driver (sslmode, connect_timeout …)."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {name: value for name, value in options.items() if name in _OURS}
    rest = {name: value for name, value in options.items() if name not in _OURS}
    # Not as in a form: the driver would not read a plus as a space.
    query = urlencode(rest, quote_via=quote)
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    check_names(
        rest,
        {option.keyword.decode() for option in Conninfo.get_defaults()},
        example=_EXAMPLE,
        next_step=f"Use ours ({', '.join(sorted(_OURS))}), or those of the driver.",
    )
    if not is_unambiguous(parts) or not _is_readable(conninfo):
        raise unreadable(_EXAMPLE)
    schema = ours.get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise StoreMisconfigured(
            f"{schema!r} cannot be the schema of the jobs.",
            next_step="Use up to 58 lower-case letters, digits and underscores.",
        )
    return Location(
        conninfo=conninfo,
        schema=schema,
        prepare=read_bool(ours, "prepare"),
        auto_migrate=read_bool(ours, "auto_migrate"),
        wakeup=read_bool(ours, "wakeup"),
        connections=int(read_number(ours, "connections", 10, least=2)),
        deadline=timedelta(seconds=read_number(ours, "deadline", 30, least=0.1)),
    )


def _is_readable(conninfo: str) -> bool:
    try:
        ports = str(conninfo_to_dict(conninfo).get("port", "")).split(",")
    except psycopg.ProgrammingError:
        return False
    return all(port == "" or port.isdigit() for port in ports)
