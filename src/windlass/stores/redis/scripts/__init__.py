"""The scripts, one per verb: put together from their parts, and called by their hash."""

import hashlib
from importlib.resources import files
from typing import Final

import msgspec

_FOLDER: Final = files(__name__)


class Script(msgspec.Struct, frozen=True):
    """A script, and the hash by which it is called."""

    text: str
    digest: str
    writes_jobs: bool
    """Whether what it writes is to outlive the server."""


def _script(name: str, *parts: str, flags: str) -> Script:
    texts = [_FOLDER.joinpath(f"{part}.lua").read_text("utf-8") for part in ("keys", *parts, name)]
    text = f"#!lua flags={flags}\n" + "".join(texts)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(text, digest, writes_jobs=flags != "no-writes" and name != "format")


def _reading(name: str, *parts: str) -> Script:
    return _script(name, *parts, flags="no-writes")


def _writing(name: str, *parts: str) -> Script:
    """One that goes on when the memory is full: what runs may end, and what is old be removed."""
    return _script(name, *parts, flags="allow-oom")


_LOGGING: Final = ("state", "places", "log", "logging")
_STORING: Final = (*_LOGGING, "names", "dedupe", "storing")

FORMAT: Final = _writing("format")
INSERT: Final = _script("insert", *_STORING, flags="")
CLAIM: Final = _writing("claim", *_LOGGING)
RENEW: Final = _writing("renew", "state")
PROGRESS: Final = _writing("progress", *_LOGGING)
APPLY: Final = _writing("apply", *_STORING, "recording")
DELETE: Final = _writing("delete", "state", "places", "dedupe", "log", "removing")
PRUNE_JOBS: Final = _writing("prune_jobs", "state", "places", "log", "removing", "key_names")
PRUNE_REST: Final = _writing("prune_rest", "dedupe", "recording")
WRITE_RECORDS: Final = _writing("write_records", "recording")
LOAD_JOBS: Final = _script("load_jobs", *_LOGGING, "names", flags="")
LOAD_KEYS: Final = _script("load_keys", "dedupe", "state", "key_names", flags="")
LOAD_RECORDS: Final = _script("load_records", "recording", flags="")
LOAD_REST: Final = _writing("load_rest")
CLEAR: Final = _writing("clear")
LEAD: Final = _writing("lead")
RESIGN: Final = _writing("resign")

PING: Final = _reading("ping")
GET: Final = _reading("get", "log")
EXPIRED: Final = _reading("expired")
HISTORY: Final = _reading("history", "log")
EVENTS: Final = _reading("events", "log")
LAST_EVENT: Final = _reading("last_event")
PLACES_OF: Final = _reading("places_of")
WINDOW: Final = _reading("window")
COUNTS: Final = _reading("counts")
WAITING: Final = _reading("waiting")
DEAD_COUNTS: Final = _reading("dead_counts")
DEAD_GROUPS: Final = _reading("dead_groups")
HELD: Final = _reading("held", "dedupe")
REQUEST_KEYS: Final = _reading("request_keys", "dedupe")
READ_RECORDS: Final = _reading("read_records")
DUMP_JOBS: Final = _reading("dump_jobs", "log")
DUMP_KEYS: Final = _reading("dump_keys", "dedupe")
DUMP_LIVE_KEYS: Final = _reading("dump_live_keys", "state", "dedupe")
DUMP_RECORDS: Final = _reading("dump_records")
DUMP_REST: Final = _reading("dump_rest")
