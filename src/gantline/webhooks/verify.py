"""Verifying what was received: for receivers in Python. Needs no more than the standard library."""

import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from gantline.contract.errors import WebhookNotVerified
from gantline.webhooks.signing import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    plain_signature,
    signature,
)

TOLERANCE: Final = timedelta(minutes=5)
_LONGEST_TIMESTAMP: Final = 12
_MOST_SIGNATURES: Final = 16


class Verified(NamedTuple):
    """Who verified knows: the id is the same whenever the same is delivered again."""

    webhook_id: str
    sent_at: datetime


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> Verified:
    """Check that a request comes from who has the secret, and lately; raise WebhookNotVerified.

    `body` is what came, byte for byte, before anything reads it as JSON. While a secret is being
    rotated, give both. Each id is to be handled once: keep those that were.
    """
    named = _lower_case(headers)
    webhook_id, sent, signatures = (
        _header(named, name) for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    )
    sent_at = _instant(sent)
    if abs((now or datetime.now(UTC)) - sent_at) > tolerance:
        raise WebhookNotVerified(
            f"It was not sent within {tolerance.total_seconds():g} seconds of now.",
            next_step="Is the clock right? Else it is an old request, sent again by somebody.",
        )
    given = [one.encode() for one in signatures.split()[:_MOST_SIGNATURES]]
    expected = [signature(one, webhook_id, sent, body).encode() for one in _several(secret)]
    if not any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in given):
        raise _wrong_signature()
    return Verified(webhook_id, sent_at)


def verify_plain(body: bytes, signature_header: str, secret: str | Sequence[str]) -> None:
    """Check the `X-Gantline-Signature` of a body; raise WebhookNotVerified.

    It says nothing about when the body was sent, so prefer `verify`.
    """
    given = signature_header.strip().encode("utf-8", "replace")
    expected = [plain_signature(one, body).encode() for one in _several(secret)]
    if not any(hmac.compare_digest(ours, given) for ours in expected):
        raise _wrong_signature()


def _several(secret: str | Sequence[str]) -> Sequence[str]:
    return [secret] if isinstance(secret, str) else secret


def _lower_case(headers: Mapping[str, str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in headers.items():
        if named.setdefault(name.lower(), value) != value:
            raise WebhookNotVerified(f"The header {name[:64]} is there twice.")
    return named


def _header(named: Mapping[str, str], name: str) -> str:
    value = named.get(name, "").strip()
    if not value or not value.isascii():
        raise WebhookNotVerified(f"The header {name} is missing, or is not ASCII.")
    return value


def _instant(text: str) -> datetime:
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_TIMESTAMP):
        raise WebhookNotVerified(f"The header {TIMESTAMP_HEADER} is no time in seconds.")
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (OverflowError, ValueError, OSError):
        raise WebhookNotVerified(f"The header {TIMESTAMP_HEADER} is no time there is.") from None


def _wrong_signature() -> WebhookNotVerified:
    return WebhookNotVerified(
        "No signature fits.",
        next_step="Check the secret, and that the body is verified byte for byte as it came.",
    )
