"""The tutorial is followed as it is written, in an empty folder."""

import threading
import urllib.request
from datetime import UTC, datetime
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gantline.contract.webhook import WebhookEndpoint, WebhookStatus
from gantline.webhooks.bodies import encode_test_event
from gantline.webhooks.signing import new_secret, sign_standard
from tests.test_documentation import Shell, modules, page
from tests.walkthrough import Walkthrough

pytestmark = pytest.mark.timeout(300)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    text = page("tutorial.md")
    with Walkthrough(Shell(tmp_path)) as reader:
        reader.follow(text)
        assert f"the receiver prints `{reader.heard()}`" in text


def test_the_receiver_takes_the_event_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    code = modules(page("tutorial.md"))["receiver.py"].split("with HTTPServer")[0]
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(code, "receiver.py", "exec"), names)  # noqa: S102  # our own
    secret, at = new_secret(), datetime.now(UTC)
    monkeypatch.setenv("GANTLINE_WEBHOOK_SECRET", secret)
    webhook = WebhookEndpoint(
        url="http://127.0.0.1",
        webhook_id=uuid4(),
        tenant_id="default",
        status=WebhookStatus.ENABLED,
        status_reason="",
        status_since=at,
        failing_since=None,
        created_at=at,
        created_by="",
        updated_at=at,
        updated_by="",
        old_secret_until=None,
    )
    body = encode_test_event("e1", webhook, at, source="/gantline").text
    stamp = str(int(at.timestamp()))
    with HTTPServer(("127.0.0.1", 0), names["Receiver"]) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        request = urllib.request.Request(  # to ourselves
            f"http://127.0.0.1:{server.server_port}/",
            data=body,
            headers={
                "webhook-id": "e1",
                "webhook-timestamp": stamp,
                "webhook-signature": sign_standard(secret, "e1", stamp, body),
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # as above
            assert answer.status == 204
        serving.join()
