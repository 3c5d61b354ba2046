"""Signatures: as Standard Webhooks and the seeds have them, proven by their own code."""

import hashlib
import hmac
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gantline.contract.errors import InvalidInput, WebhookNotVerified
from gantline.webhooks import verify, verify_plain
from gantline.webhooks.signing import decode_secret, new_secret, sign_plain, sign_standard

BODY = '{"type":"job.completed","data":{"name":"Žofie"}}'.encode()
ID = "0190163d-8694-739b-aea5-966c26f8ad91"


def headers(*secrets: str, at: datetime | None = None, body: bytes = BODY) -> dict[str, str]:
    sent = str(int((at or datetime.now(UTC)).timestamp()))
    return {
        "webhook-id": ID,
        "webhook-timestamp": sent,
        "webhook-signature": " ".join(sign_standard(one, ID, sent, body) for one in secrets),
    }


def test_the_standard_library_verifies_ours_and_we_verify_theirs() -> None:
    secret = new_secret()
    Webhook(secret).verify(BODY, headers(secret))
    now = datetime.now(UTC)
    theirs = {
        "webhook-id": ID,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(ID, now, BODY.decode()),
    }
    assert verify(BODY, theirs, secret).webhook_id == ID


def test_while_a_secret_is_rotated_both_verify() -> None:
    old, new, other = new_secret(), new_secret(), new_secret()
    sent = headers(new, old)
    for secret in (old, new):
        Webhook(secret).verify(BODY, sent)
        verify(BODY, sent, secret)
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(BODY, sent)
    with pytest.raises(WebhookNotVerified):
        verify(BODY, sent, other)
    verify(BODY, headers(old), [new, old])


def verify_signature(secret: str, body_bytes: bytes, signature_header: str) -> bool:
    """As seed 002 gives it to receivers."""
    expected = hmac.new(secret.encode(), body_bytes, hashlib.sha256).hexdigest()
    provided = signature_header.removeprefix("sha256=")
    return hmac.compare_digest(expected, provided)


def test_the_seeds_snippet_verifies_the_plain_header() -> None:
    secret = new_secret()
    header = sign_plain(secret, BODY)
    assert re.fullmatch(r"sha256=[0-9a-f]{64}", header)
    assert verify_signature(secret, BODY, header)
    verify_plain(BODY, header, [new_secret(), secret])
    for body, secret_tried in ((BODY + b" ", secret), (BODY, new_secret())):
        assert not verify_signature(secret_tried, body, header)
        with pytest.raises(WebhookNotVerified):
            verify_plain(body, header, secret_tried)


@pytest.mark.parametrize("secret", ["", (), [""], [" "], [new_secret(), ""], "whsec_", "secret"])
def test_who_has_no_secret_verifies_nothing(secret: str | Sequence[str]) -> None:
    """Anybody can sign with an empty one; and a missing setting is no fault of a request."""
    empty = "sha256=" + hmac.digest(b"", BODY, "sha256").hex()
    for header in (empty, "sha256=0", ""):
        with pytest.raises(InvalidInput):
            verify_plain(BODY, header, secret)
    for sent in (headers(new_secret()), {}):
        with pytest.raises(InvalidInput):
            verify(BODY, sent, secret)


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "another"},
        {"webhook-id": ""},
        {"webhook-timestamp": "1"},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": "9" * 12},
        {"webhook-timestamp": "٣"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v2,AAAA"},
        {"webhook-signature": "v1,ÄÄÄ="},
        {"Webhook-Id": "another"},
    ],
)
def test_what_was_changed_on_the_way_is_refused(changed: dict[str, str]) -> None:
    secret = new_secret()
    with pytest.raises(WebhookNotVerified):
        verify(BODY, headers(secret) | changed, secret)


def test_another_body_is_refused() -> None:
    secret = new_secret()
    with pytest.raises(WebhookNotVerified):
        verify(BODY + b"\n", headers(secret), secret)


@pytest.mark.parametrize(("minutes", "good"), [(-6, False), (-4, True), (4, True), (6, False)])
def test_what_was_not_sent_lately_is_refused(minutes: int, good: bool) -> None:
    secret = new_secret()
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    sent = headers(secret, at=now + timedelta(minutes=minutes))
    if good:
        verify(BODY, sent, secret, now=now)
    else:
        with pytest.raises(WebhookNotVerified):
            verify(BODY, sent, secret, now=now)
    verify(BODY, sent, secret, now=now, tolerance=timedelta(minutes=7))


def test_headers_may_come_in_any_case() -> None:
    secret = new_secret()
    verify(BODY, {name.title(): value for name, value in headers(secret).items()}, secret)


def test_a_secret_has_its_form_and_no_error_quotes_it() -> None:
    assert len(decode_secret(new_secret())) == 32
    assert new_secret() != new_secret()
    for wrong in (
        "",
        "whsec_",
        "whsec_c2hvcnQ=",
        "whsec_!!!!",
        "c2VjcmV0",
        "c2 " * 9,
        "c2é" * 9,
        "c2" * 129,
    ):
        with pytest.raises(InvalidInput) as error:
            decode_secret(wrong)
        assert "c2" not in str(error.value)


def test_a_plain_text_is_its_own_key() -> None:
    """As receivers of seed 002 have it; a library of Standard Webhooks takes it in base64."""
    secret = "-".join(("correct", "horse", "battery", "staple"))
    assert verify_signature(secret, BODY, sign_plain(secret, BODY))
    verify_plain(BODY, sign_plain(secret, BODY), secret)
    Webhook("whsec_" + b64encode(secret.encode()).decode()).verify(BODY, headers(secret))
    verify(BODY, headers(secret), secret)
    with pytest.raises(WebhookNotVerified):
        verify_plain(BODY, sign_plain(secret, BODY), secret[::-1])


def test_who_only_verifies_needs_no_http_library() -> None:
    code = (
        "import sys, gantline.webhooks; "
        "print([m for m in ('httpx2', 'httpcore2', 'cryptography', 'anyio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
