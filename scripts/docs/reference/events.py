"""Every event, and the documents that carry it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, get_args
from uuid import UUID

import msgspec

from gantline.contract.job_event import CloudEvent, OutcomeDocument
from gantline.contract.status import ON_REQUEST, TRANSITIONS, Event
from scripts.docs import markdown
from scripts.docs.markdown import code, table
from scripts.docs.reference.settings import field_docs

NAMES: Final = {
    str: "string",
    int: "integer",
    float: "number",
    datetime: "date-time",
    UUID: "UUID",
    Any: "anything",
    type(None): "null",
    msgspec.UnsetType: "left out",
}
INTRODUCTION: Final = """\
What is reported about jobs to [consumers](../events.md), [streams](../http.md#follow-a-job),
[webhooks](../webhooks.md) and [brokers](../bridge.md)."""


def page() -> str:
    return markdown.page(
        "Events",
        INTRODUCTION,
        "## The events",
        table(["event", "logged", "leads to"], map(_event, Event)),
        "## The outcome",
        "`event.document()` in Python, `data` of a webhook and of a CloudEvent; never the payload.",
        table(["field", "type", ""], _fields(OutcomeDocument)),
        "## As a CloudEvent",
        "Structured mode, CloudEvents 1.0.",
        table(["field", "type", ""], _fields(CloudEvent)),
    )


def _event(event: Event) -> list[str]:
    leads_to = {to for _, move, to in TRANSITIONS if move is event}
    logged = "if the type asks for it" if event in ON_REQUEST else "always"
    return [code(f"job.{event}"), logged, ", ".join(sorted(leads_to))]


def _fields(kind: type[msgspec.Struct]) -> Iterator[list[str]]:
    described = field_docs(kind)
    for field in msgspec.structs.fields(kind):
        yield [code(field.encode_name), _type(field.type), described.get(field.name, "")]


def _type(annotation: Any) -> str:
    kinds = get_args(annotation) or (annotation,)
    names = [NAMES.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds]
    return " or ".join(names)
