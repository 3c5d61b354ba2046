"""What is kept of an audit entry, and in whose chain."""

from typing import Any, Final
from uuid import uuid4

import msgspec

from gantline.audit.event import Draft
from gantline.contract.audit import ALLOWED, AuditEntry
from gantline.contract.text import storable

ACCESS: Final = "access"
"""What refusals are about: a tenant's border."""
_TEXT_LIMIT: Final = 512
_DETAILS_LIMIT: Final = 4096

_KEPT: Final = (
    "action",
    "actor_tenant",
    "client",
    "correlation_id",
    "job_type",
    "operation",
    "outcome",
    "subject_id",
    "tenant_id",
    "what",
)


def chain_of(entry: AuditEntry) -> str:
    """The tenant in whose chain an entry belongs.

    What was done belongs to those whose it was done to. What was refused stays with the one who
    tried: nobody can write into the chain of a tenant that is not open to him.
    """
    if entry.outcome == ALLOWED and entry.tenant_id:
        return entry.tenant_id
    return entry.actor_tenant


def draft_of(entry: AuditEntry) -> Draft:
    """What is kept. The id makes each draft unlike every other, so that no store takes one for the
    repeat of another's."""
    shown = _without_what_is_hidden(entry)
    payload: dict[str, Any] = {"id": uuid4().hex}
    for name in _KEPT:
        if text := storable(getattr(shown, name), _TEXT_LIMIT):
            payload[_camel(name)] = text
    if shown.job_id is not None:
        payload["jobId"] = str(shown.job_id)
    if shown.details:
        payload["details"] = _small(shown.details)
    return Draft(
        aggregate=storable(_aggregate(shown), _TEXT_LIMIT),
        type=storable(shown.operation or shown.action, _TEXT_LIMIT),
        actor=storable(shown.actor, _TEXT_LIMIT),
        payload=payload,
    )


def _without_what_is_hidden(entry: AuditEntry) -> AuditEntry:
    """Of a job that he may not know of, whoever asked for it reads no more than he named."""
    if entry.outcome == "hidden" and entry.job_id is not None:
        return msgspec.structs.replace(entry, tenant_id="", job_type="", subject_id="")
    return entry


def _aggregate(entry: AuditEntry) -> str:
    if entry.outcome != ALLOWED:
        return ACCESS
    if entry.job_id is not None:
        return f"job:{entry.job_id}"
    return entry.what or "tenant"


def _small(details: Any) -> Any:
    """Plain JSON data, or that there was too much of it."""
    try:
        body = msgspec.json.encode(details)
    except UnicodeEncodeError:
        return {"omitted": "is no text"}
    if len(body) > _DETAILS_LIMIT:
        return {"omitted": f"{len(body)} bytes"}
    return msgspec.json.decode(body)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
