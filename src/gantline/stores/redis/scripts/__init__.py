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
    """Whether what it writes must survive the server."""


def _script(name: str, *parts: str, flags: str) -> Script:
    texts = [_FOLDER.joinpath(f"{part}.lua").read_text("utf-8") for part in ("keys", *parts, name)]
    text = f"#!lua flags={flags}\n" + "".join(texts)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(text, digest, writes_jobs=flags != "no-writes" and name != "format")


def _reading(name: str, *parts: str) -> Script:
    return _script(name, *parts, flags="no-writes")


def _writing(name: str, *parts: str) -> Script:
    """A script that also runs when the memory is full: so that runs can end and jobs be removed."""
    return _script(name, *parts, flags="allow-oom")


_LOGGING: Final = ("state", "places", "log", "logging")
_STORING: Final = (*_LOGGING, "envelope", "names", "dedupe", "storing")
_REMOVING: Final = ("state", "envelope", "places", "ending", "log", "dedupe", "removing")

FORMAT: Final = _writing("format")
INSERT: Final = _script("insert", *_STORING, flags="")
CLAIM: Final = _writing("claim", *_LOGGING, "ranking", "leases", "forgetting", "recording")
RENEW: Final = _writing("renew", "state", "runs", "leases")
EXPIRED: Final = _writing("expired", "state", "leases", "places", "forgetting")
EXPIRE_SESSION: Final = _writing("expire_session", "state", "leases", "places")
PROGRESS: Final = _writing("progress", *_LOGGING, "runs")
APPLY: Final = _writing("apply", *_STORING, "ranking", "ending", "recording", "runs", "leases")
DELETE: Final = _writing("delete", *_REMOVING)
PRUNE_JOBS: Final = _writing("prune_jobs", *_REMOVING, "key_names", "forgetting")
PRUNE_REST: Final = _writing("prune_rest", "dedupe", "recording")
WRITE_RECORDS: Final = _writing("write_records", "recording")
LOAD_JOBS: Final = _script(
    "load_jobs", *_LOGGING, "envelope", "ranking", "ending", "names", flags=""
)
LOAD_KEYS: Final = _script("load_keys", "dedupe", "state", "envelope", "key_names", flags="")
LOAD_RECORDS: Final = _script("load_records", "recording", flags="")
LOAD_REST: Final = _writing("load_rest")
CLEAR: Final = _writing("clear")
LEAD: Final = _writing("lead")
RESIGN: Final = _writing("resign")

PING: Final = _reading("ping")
GET: Final = _reading("get", "state", "leases", "log")
HISTORY: Final = _reading("history", "log")
EVENTS: Final = _reading("events", "log")
LAST_EVENT: Final = _reading("last_event")
PLACES_OF: Final = _reading("places_of")
WINDOW: Final = _reading("window")
COUNTS: Final = _reading("counts")
WAITING: Final = _reading("waiting")
DEAD_COUNTS: Final = _reading("dead_counts")
DUE: Final = _reading("due")
HELD: Final = _reading("held", "dedupe")
REQUEST_KEYS: Final = _reading("request_keys", "dedupe")
READ_RECORDS: Final = _reading("read_records")
DUMP_JOBS: Final = _reading("dump_jobs", "log")
DUMP_KEYS: Final = _reading("dump_keys", "dedupe")
DUMP_LIVE_KEYS: Final = _reading("dump_live_keys", "state", "dedupe")
DUMP_RECORDS: Final = _reading("dump_records")
DUMP_REST: Final = _reading("dump_rest")
