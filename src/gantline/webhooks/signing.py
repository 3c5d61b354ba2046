"""Signatures of webhooks: how a delivery is signed, and how a receiver in Python verifies it.

By Standard Webhooks 1.0, and by a plain HMAC in a header of the sender's own. Verifying needs the
standard library only.
"""

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from gantline.contract.clock import SystemClock
from gantline.contract.errors import InvalidInput, WebhookNotVerified
from gantline.contract.version import __version__
from gantline.runtime import random_bytes

PREFIX: Final = "whsec_"
_SHORTEST: Final = 24
_LONGEST: Final = 64
_NEW_BYTES: Final = 32
_PLAIN: Final = re.compile(r"[!-~]{16,256}")
SECRET_RULE: Final = (
    f"must be {PREFIX} and {_SHORTEST} to {_LONGEST} bytes in base64, or a plain text of 16 to 256 "
    "printable ASCII characters without blanks"
)

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
_AGENT: Final = f"Gantline/{__version__}"

TOLERANCE: Final = timedelta(minutes=5)
_LONGEST_TIMESTAMP: Final = 12
_MOST_SIGNATURES: Final = 16


def new_secret() -> str:
    """Make a secret as it is shown to people: `whsec_` and 32 random bytes in base64."""
    return PREFIX + b64encode(random_bytes(_NEW_BYTES)).decode()


def decode_secret(secret: str) -> bytes:
    """Return the key of a secret; raise InvalidInput, which never quotes it.

    A plain text, as a receiver may have it from another system, is its own key.
    """
    if not secret.startswith(PREFIX) and _PLAIN.fullmatch(secret):
        return secret.encode()
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        raise InvalidInput("This is not a webhook secret.", next_step=f"It {SECRET_RULE}.")
    return key


def sign_standard(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    """Sign by Standard Webhooks: `v1,` and the HMAC-SHA256 over id, timestamp and body."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(decode_secret(secret), signed, "sha256")).decode()


def sign_plain(secret: str, body: bytes) -> str:
    """Sign the body alone, by the secret just as it is shown: `sha256=` and hex."""
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


def build_headers(
    body: bytes,
    secrets: Sequence[str],
    *,
    message_id: str,
    event_type: str,
    content_type: str,
    prefix: str,
    now: datetime,
) -> dict[str, str]:
    """Build all headers of an attempt. The timestamp is of the attempt, the id of the delivery."""
    sent = str(int(now.timestamp()))
    headers = {
        "Content-Type": content_type,
        "User-Agent": _AGENT,
        "Accept-Encoding": "identity",
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: sent,
        SIGNATURE_HEADER: " ".join(sign_standard(one, message_id, sent, body) for one in secrets),
        f"{prefix}-Signature": sign_plain(secrets[0], body),
        f"{prefix}-Event-Type": event_type,
        f"{prefix}-Delivery-Id": message_id,
    }
    if len(secrets) > 1:
        headers[f"{prefix}-Signature-Previous"] = sign_plain(secrets[1], body)
    return headers


class Verified(NamedTuple):
    """A verified request. The id is the same for all attempts of a delivery."""

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
    """Check that a request was signed with the secret, and lately; raise WebhookNotVerified.

    `body` is what came, byte for byte, before anything reads it as JSON. While a secret is being
    rotated, give both. Each id is to be handled once: keep those that were. What is no secret
    raises InvalidInput, whatever was sent.
    """
    secrets = _check_secrets(secret)
    named = _lower_names(headers)
    webhook_id, sent, signatures = (
        _read_header(named, name) for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    )
    sent_at = _read_timestamp(sent)
    if abs((now or SystemClock().now()) - sent_at) > tolerance:
        raise WebhookNotVerified(
            f"It was not sent within {tolerance.total_seconds():g} seconds of now.",
            next_step="Is the clock right? Else it is an old request, sent again by somebody.",
        )
    given = [one.encode() for one in signatures.split()[:_MOST_SIGNATURES]]
    expected = [sign_standard(one, webhook_id, sent, body).encode() for one in secrets]
    if not any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in given):
        raise _build_error()
    return Verified(webhook_id, sent_at)


def verify_plain(body: bytes, signature_header: str, secret: str | Sequence[str]) -> None:
    """Check the `X-Gantline-Signature` of a body; raise WebhookNotVerified.

    It says nothing about when the body was sent, so prefer `verify`. What is no secret raises
    InvalidInput, whatever was sent.
    """
    given = signature_header.strip().encode("utf-8", "replace")
    expected = [sign_plain(one, body).encode() for one in _check_secrets(secret)]
    if not any(hmac.compare_digest(ours, given) for ours in expected):
        raise _build_error()


def _check_secrets(secret: str | Sequence[str]) -> Sequence[str]:
    """List them; raise InvalidInput where one is none: anybody can sign with an empty one."""
    secrets = [secret] if isinstance(secret, str) else secret
    if not secrets:
        raise InvalidInput("There is no secret to verify with.")
    for one in secrets:
        decode_secret(one)
    return secrets


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in headers.items():
        if named.setdefault(name.lower(), value) != value:
            raise WebhookNotVerified(f"The header {name[:64]} is there twice.")
    return named


def _read_header(named: Mapping[str, str], name: str) -> str:
    value = named.get(name, "").strip()
    if not value or not value.isascii():
        raise WebhookNotVerified(f"The header {name} is missing, or is not ASCII.")
    return value


def _read_timestamp(text: str) -> datetime:
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_TIMESTAMP):
        raise WebhookNotVerified(f"The header {TIMESTAMP_HEADER} is not a time in seconds.")
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (OverflowError, ValueError, OSError):
        raise WebhookNotVerified(f"The header {TIMESTAMP_HEADER} is not a valid time.") from None


def _build_error() -> WebhookNotVerified:
    return WebhookNotVerified(
        "No signature fits.",
        next_step="Check the secret, and that the body is verified byte for byte as it came.",
    )
