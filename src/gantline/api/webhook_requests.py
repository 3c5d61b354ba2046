"""The requests that webhooks make, as the OpenAPI document describes them to receivers."""

from typing import Any, Final

from gantline.contract.webhook import EVENT_TYPES

_HEADERS: Final = (
    ("webhook-id", "Of this message; the same whenever it is sent again.", {"type": "string"}),
    ("webhook-timestamp", "When it was sent, in seconds.", {"type": "string"}),
    (
        "webhook-signature",
        "One or more of `v1,` and the HMAC-SHA256 over id, timestamp and body, in base64.",
        {"type": "string"},
    ),
    (
        "X-Gantline-Signature",
        "`sha256=` and the HMAC-SHA256 over the body, in hex; the prefix is the endpoint's.",
        {"type": "string"},
    ),
    ("X-Gantline-Event-Type", "What happened.", {"type": "string"}),
    ("X-Gantline-Delivery-Id", "As webhook-id.", {"type": "string"}),
)


def webhooks(standard: dict[str, Any], cloud_event: dict[str, Any]) -> dict[str, Any]:
    """One for each type of event; all look the same."""
    return {name: {"post": _request(name, standard, cloud_event)} for name in EVENT_TYPES}


def _request(name: str, standard: dict[str, Any], cloud_event: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"on.{name}",
        "summary": f"Tell an endpoint: {name}.",
        "tags": ["webhooks"],
        "security": [],
        "parameters": [
            {"name": header, "in": "header", "required": True, "description": text, "schema": kind}
            for header, text, kind in _HEADERS
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": standard},
                "application/cloudevents+json": {"schema": cloud_event},
            },
        },
        "responses": {
            "2XX": {"description": "It has been taken."},
            "410": {"description": "It wants nothing more: the endpoint is disabled."},
            "default": {
                "description": "408, 425, 429 and 5xx are tried again, as Retry-After says; "
                "anything else is given up. Redirects are not followed."
            },
        },
    }
