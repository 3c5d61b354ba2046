"""What docs/webhooks.md tells is true: its Python, its commands, its numbers."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from gantline.app.settings import SETTINGS
from gantline.cli.main import main
from gantline.contract.domain_event import ALL_DOMAIN_EVENTS, ALL_EVENTS
from gantline.contract.webhook import EVENT_TYPES, OUTCOMES, BodyFormat, WebhookSpec
from gantline.webhooks.retry import SCHEDULE
from gantline.webhooks.secret_encryption import KEY_VARIABLE
from gantline.webhooks.signing import new_secret, sign_standard

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")


def test_the_python_verifies() -> None:
    names: dict[str, Any] = {"seen": set()}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(block, "webhooks.md", "exec"), names)  # noqa: S102  # our own page
    secret, sent = new_secret(), str(int(datetime.now(UTC).timestamp()))
    headers = {
        "webhook-id": "abc",
        "webhook-timestamp": sent,
        "webhook-signature": sign_standard(secret, "abc", sent, b"{}"),
    }
    assert names["receive"](b"{}", headers, secret) == 204
    assert names["receive"](b"[]", headers, secret) == 401
    assert names["seen"] == {"abc"}


def test_every_command_is_one() -> None:
    group = main.commands["webhook"]
    assert isinstance(group, click.Group)
    told = re.findall(r"gantline webhook (\w+)([^`\n]*)", PAGE)
    assert {name for name, _ in told} >= {"add", "test", "deliveries", "rotate", "replay", "verify"}
    for name, rest in told:
        options = {one for option in group.commands[name].params for one in option.opts}
        assert set(re.findall(r"(?<= )-{1,2}[a-zH-]+", rest)) <= options, name


def test_every_field_is_told_with_its_default() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    fields = {one.encode_name for one in msgspec.structs.fields(WebhookSpec)}
    assert fields - {"url", "description"} <= set(table)
    spec = WebhookSpec(url="https://hooks.example.com/")
    assert table["timeoutSeconds"].startswith(f"{spec.timeout_seconds:g};")
    assert table["concurrency"].startswith(f"{spec.concurrency};")
    assert table["headerPrefix"].startswith(f"`{spec.header_prefix}`;")
    default, others = table["eventTypes"].split("by default")
    assert re.findall(r"`(.+?)`", default) == list(OUTCOMES)
    assert {*OUTCOMES, *re.findall(r"`(.+?)`", others)} == {
        *(*EVENT_TYPES, ALL_EVENTS, ALL_DOMAIN_EVENTS),
        "ORDER_SHIPPED",
    }
    assert set(re.findall(r"`(.+?)`", table["format"])) == set(BodyFormat)


def test_the_schedule_and_the_settings_are_those_of_the_code() -> None:
    told = re.search(r"tried again after (.+?), each", PAGE)
    assert told is not None
    seconds = [wait.total_seconds() for wait in SCHEDULE.waits]
    assert seconds[:3] == [5, 5 * 60, 30 * 60]
    assert re.findall(r"\d+", told[1]) == [
        "5",
        "5",
        "30",
        *(str(int(s / 3600)) for s in seconds[3:]),
    ]
    variables = {setting.variable for setting in SETTINGS} | {KEY_VARIABLE}
    mentioned = set(re.findall(r"GANTLINE_WEBHOOK_[A-Z]+(?:_[A-Z]+)*", PAGE))
    assert mentioned - {"GANTLINE_WEBHOOK_SECRET"} <= variables
