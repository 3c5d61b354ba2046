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


_PLACES: Final = ("state", "groups", "places")
_LOGGING: Final = (*_PLACES, "log", "logging")
_STORING: Final = (*_LOGGING, "envelope", "names", "dedupe", "adding", "storing")
_REMOVING: Final = (*_PLACES, "envelope", "ending", "log", "dedupe", "removing")

FORMAT: Final = _writing("format")
INSERT: Final = _script("insert", *_STORING, flags="")
CLAIM: Final = _writing(
    "claim",
    *_LOGGING,
    "adding",
    "ranking",
    "leases",
    "forgetting",
    "recording",
    "gating",
    "turning",
)
RENEW: Final = _writing("renew", "state", "runs", "leases")
EXPIRED: Final = _writing("expired", *_PLACES, "leases", "forgetting")
PAST_EXPIRY: Final = _writing("past_expiry", "state")
EXPIRE_SESSION: Final = _writing("expire_session", *_PLACES, "leases")
PROGRESS: Final = _writing("progress", *_LOGGING, "runs")
APPLY: Final = _writing(
    "apply", *_STORING, "ranking", "ending", "recording", "runs", "leases", "gating"
)
DELETE: Final = _writing("delete", *_REMOVING)
PRUNE_JOBS: Final = _writing("prune_jobs", *_REMOVING, "key_names", "forgetting")
PRUNE_REST: Final = _writing("prune_rest", "dedupe", "recording", "gating")
WRITE_RECORDS: Final = _writing("write_records", "recording")
LOAD_JOBS: Final = _script(
    "load_jobs", *_LOGGING, "envelope", "adding", "ranking", "ending", "names", flags=""
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
AHEAD: Final = _reading("ahead", *_PLACES, "adding", "ranking")
COUNTS: Final = _reading("counts")
WAITING: Final = _reading("waiting")
LIST_GROUPS: Final = _reading("list_groups", *_PLACES)
QUEUED_OF_GROUP: Final = _reading("queued_of_group", *_PLACES)
GATES: Final = _reading("gates", "gating")
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
