"""Bodies of deliveries in each format. The same event always gives the same bytes."""

from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from gantline.contract.job_event import (
    DomainDocument,
    JobEvent,
    OutcomeDocument,
)
from gantline.contract.webhook import TEST_EVENT, BodyFormat, StandardEvent, WebhookEndpoint

LARGEST: Final = 20_000
"""The limit that Standard Webhooks recommends."""
_TOO_LARGE: Final = "the event would be larger than 20 kB"
_JSON: Final = "application/json"
_CLOUDEVENTS_JSON: Final = "application/cloudevents+json"

_encode: Final = msgspec.json.Encoder().encode


class Body(NamedTuple):
    """What is sent: its bytes, and their description in the headers."""

    event_type: str
    content_type: str
    text: bytes


def encode_event(event: JobEvent, format_: BodyFormat, *, source: str) -> Body:
    """Encode an event. A result that would make it too large is left out; a domain event fits."""
    data = event.data()
    body = _encode_in_format(event, data, format_, source)
    if len(body.text) <= LARGEST or isinstance(data, DomainDocument):
        return body
    smaller = msgspec.structs.replace(data, result=None, result_omitted=_TOO_LARGE)
    return _encode_in_format(event, smaller, format_, source)


def _encode_in_format(
    event: JobEvent, data: OutcomeDocument | DomainDocument, format_: BodyFormat, source: str
) -> Body:
    match format_:
        case BodyFormat.STANDARD:
            standard = StandardEvent(type=event.type, timestamp=event.entry.at, data=data)
            return Body(event.type, _JSON, _encode(standard))
        case BodyFormat.CLOUDEVENTS:
            # Its number counts the events of all tenants; `version` orders those of the job.
            cloud = msgspec.structs.replace(event.cloud_event(source), data=data, sequence=None)
            return Body(cloud.type, _CLOUDEVENTS_JSON, _encode(cloud))
        case BodyFormat.BPC:
            return _encode_bpc(event, data)


def encode_test_event(
    event_id: str, webhook: WebhookEndpoint, at: datetime, *, source: str
) -> Body:
    """Encode a test event, which is about no job."""
    about = {"webhookId": webhook.webhook_id, "tenantId": webhook.tenant_id}
    match webhook.format:
        case BodyFormat.STANDARD:
            fields: dict[str, Any] = {"type": TEST_EVENT, "timestamp": at, "data": about}
            return Body(TEST_EVENT, _JSON, _encode(fields))
        case BodyFormat.CLOUDEVENTS:
            fields = {
                "id": event_id,
                "source": source,
                "specversion": "1.0",
                "type": f"gantline.{TEST_EVENT}",
                "time": at,
                "datacontenttype": _JSON,
                "tenantid": webhook.tenant_id,
                "data": about,
            }
            return Body(fields["type"], _CLOUDEVENTS_JSON, _encode(fields))
        case BodyFormat.BPC:
            kind = _to_upper_snake(TEST_EVENT)
            aggregate = ("WebhookEndpoint", str(webhook.webhook_id))
            payload = {"tenant_id": webhook.tenant_id}
            return Body(
                kind,
                _JSON,
                _encode(_build_bpc(event_id, kind, at, aggregate=aggregate, payload=payload)),
            )


def _encode_bpc(event: JobEvent, data: OutcomeDocument | DomainDocument) -> Body:
    kind, aggregate = _to_upper_snake(event.type), ("Job", str(event.job.job_id))
    if isinstance(data, DomainDocument):
        kind, aggregate = event.type, (data.aggregate_type, data.aggregate_id)
        payload = data.payload
    else:
        payload = _to_snake_case(data)
    fields = _build_bpc(event.event_id, kind, event.entry.at, aggregate=aggregate, payload=payload)
    return Body(kind, _JSON, _encode(fields))


def _build_bpc(
    event_id: str, kind: str, at: datetime, *, aggregate: tuple[str, str], payload: Any
) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "event_type": kind,
        "aggregate_type": aggregate[0],
        "aggregate_id": aggregate[1],
        "occurred_at": at,
        "payload": payload,
    }


def _to_snake_case(document: OutcomeDocument) -> dict[str, Any]:
    fields = msgspec.structs.asdict(document)
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _to_upper_snake(event_type: str) -> str:
    return event_type.replace(".", "_").upper()
