"""The W3C trace context that a job carries: what is well formed is kept, the rest is dropped.

A trace is a hint for people who look for something later; it is never a reason to refuse a job.
"""

import re
from collections.abc import Mapping
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_PARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}"
    r"(?P<rest>-.*)?"
)
_PARENT_LIMIT: Final = 256
_KEY: Final = r"[a-z0-9][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
_MEMBER: Final = re.compile(rf"(?P<key>{_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x7e]")
_STATE_LIMIT: Final = 512
_MOST_MEMBERS: Final = 32


def sound_trace_context(carrier: Mapping[str, object] | None) -> dict[str, str] | None:
    """Keep `traceparent` and `tracestate` where they are well formed; None when nothing is left.

    Without a sound parent the state means nothing; a broken state costs only itself.
    """
    if not carrier:
        return None
    given = {name.lower(): value for name, value in carrier.items() if isinstance(value, str)}
    parent, state = given.get(TRACEPARENT, ""), given.get(TRACESTATE, "")
    if not _is_parent(parent):
        return None
    return {TRACEPARENT: parent} | ({TRACESTATE: state} if _is_state(state) else {})


def trace_id_of(trace_context: Mapping[str, str] | None) -> str | None:
    """The id of the trace, for logs."""
    match = _PARENT.fullmatch((trace_context or {}).get(TRACEPARENT, ""))
    return match["trace"] if match else None


def _is_parent(text: str) -> bool:
    if len(text) > _PARENT_LIMIT or not (match := _PARENT.fullmatch(text)):
        return False
    version, rest = match["version"], match["rest"]
    # A later version may say more; ours may not.
    if version == "ff" or (version == "00" and rest is not None):
        return False
    return set(match["trace"]) != {"0"} and set(match["span"]) != {"0"}


def _is_state(text: str) -> bool:
    if not text or len(text) > _STATE_LIMIT:
        return False
    members = [member.strip(" \t") for member in text.split(",")]
    given = [member for member in members if member]  # an empty one is allowed
    keys = [match["key"] for member in given if (match := _MEMBER.fullmatch(member))]
    sound = len(keys) == len(given) == len(set(keys))
    return sound and len(given) > 0 and len(members) <= _MOST_MEMBERS
