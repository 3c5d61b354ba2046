"""No text of a tenant steers the terminal of whoever looks at it, whatever the command."""

import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

import click
import pytest

from gantline.auth.peppers import PEPPER_VARIABLE
from gantline.cli.main import main
from gantline.cli.output import Output
from gantline.cli.table import Columns
from gantline.cli.talk import LastLine, ProgressLine, say_crash
from gantline.moving.closing import CopyProgress
from gantline.telemetry.logs import TextFormatter
from tests.cli.conftest import NOBODY, Place

KEY = "1:0123456789abcdefghijklmnopqrstuvwxyz"
DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
NAME = f"a{DIRECTION}z"
"""What a tenant may name things: names have no controls."""
TEXT = NAME + "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]))
ARGUMENT = f"{TEXT[:-2]}\udc80".replace("\x00", "")
"""What can stand on a command line."""
STEERING = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{DIRECTION}]")
URL = "https://93.184.215.14/hook"
FORMATS = ("table", "json", "jsonl")

# Every command, with words that make it show what a tenant wrote, or at least repeat an argument.
# DEAD, WAITING, HOOK and MADE stand for ids.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("config", "show"),
    ("job", "list"),
    ("job", "get", "DEAD"),
    ("job", "why", "DEAD"),
    ("job", "submit", NAME, ARGUMENT, ARGUMENT),
    ("job", "watch", "DEAD"),
    ("job", "redrive", ARGUMENT),
    ("job", "prune", "--older-than", ARGUMENT),
    ("dead", "list"),
    ("dead", "summary"),
    ("dead", "show", "DEAD"),
    ("dead", "redrive", ARGUMENT),
    ("dead", "discard", ARGUMENT),
    ("events",),
    ("stats",),
    ("queue", "list"),
    ("queue", "pause", NAME),
    ("queue", "resume", NAME),
    ("queue", "cap", NAME, "10"),
    ("queue", "cap", NAME, ARGUMENT),
    ("type", "list"),
    ("type", "stats"),
    ("type", "pause", NAME),
    ("type", "resume", NAME),
    ("type", "disable", NAME),
    ("type", "enable", NAME),
    ("schedule", "add", "other", NAME, json.dumps(TEXT), "--every", "1h"),
    ("limit", "set", NAME, "--rate", "1/s", "--gate", NAME),
    ("limit", "set", ARGUMENT, "--rate", ARGUMENT),
    ("limit", "list"),
    ("limit", "show", NAME),
    ("limit", "gates"),
    ("limit", "groups", ARGUMENT),
    ("limit", "clear", NAME),
    ("schedule", "list"),
    ("schedule", "show", "nightly"),
    ("schedule", "next", "nightly", ARGUMENT),
    ("schedule", "pause", "nightly"),
    ("schedule", "resume", "nightly"),
    ("schedule", "run", "nightly", ARGUMENT),
    ("schedule", "delete", "nightly", ARGUMENT),
    ("key", "create", NAME),
    ("key", "list"),
    ("key", "show", "MADE"),
    ("key", "made", "MADE", ARGUMENT),
    ("key", "rotate", "MADE"),
    ("key", "revoke", "MADE", "--yes"),
    ("key", "pepper", ARGUMENT),
    ("key", "workers", ARGUMENT),
    ("webhook", "add", URL, "--type", NAME),
    ("webhook", "list", ARGUMENT),
    ("webhook", "show", "HOOK"),
    ("webhook", "test", ARGUMENT),
    ("webhook", "deliveries", ARGUMENT),
    ("webhook", "replay", "HOOK", ARGUMENT),
    ("webhook", "rotate", "HOOK", "--overlap", "1h"),
    ("webhook", "rekey", ARGUMENT),
    ("webhook", "disable", "HOOK"),
    ("webhook", "enable", "HOOK"),
    ("webhook", "delete", ARGUMENT),
    ("webhook", "verify", ARGUMENT),
    ("consumer", "list", ARGUMENT),
    ("consumer", "delete", NAME),
    ("audit", "list"),
    ("audit", "verify", "--all-tenants"),
    ("audit", "export"),
    ("audit", "checkpoint"),
    ("audit", "prune", "--before", "1d"),
    ("db", "status", ARGUMENT),
    ("db", "migrate", ARGUMENT),
    ("db", "sql", ARGUMENT),
    ("doctor", "--store", f"sqlite:///{NAME}/no.db"),
    ("store", "copy", f"sqlite:///{NAME}.db", f"sqlite:///{NAME}2.db"),
    ("store", "reopen", ARGUMENT),
    ("sessions", ARGUMENT),
    ("prove", "--store", f"sqlite:///{NAME}", "--minutes", ARGUMENT),
    ("api", f"{NAME}:app"),
    ("bridge", f"{NAME}:app"),
    ("dev", f"{NAME}:app", ARGUMENT),
    ("worker", f"{NAME}:app"),
    ("job", "cancel", "WAITING", ARGUMENT),
    ("job", "delete", ARGUMENT),
    (ARGUMENT,),
    ("job", "list", f"--{ARGUMENT}"),
)


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield path
        return
    for name, part in command.commands.items():
        yield from leaves(part, (*path, name))


@pytest.fixture
def hostile(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A store in which a tenant has written all that it may; the ids of what it made."""
    for name, value in (
        (PEPPER_VARIABLE, KEY),
        ("GANTLINE_WEBHOOK_KEY", KEY),
        ("GANTLINE_TENANT", NAME),
        ("GANTLINE_QUEUES", ARGUMENT),
    ):
        monkeypatch.setenv(name, value)
    place.make_store()
    return {
        "DEAD": place.dead(
            NAME, tenant_id=NAME, message=TEXT, detail=f"one\n{TEXT}\ntwo", subject_id=NAME
        ),
        "WAITING": place.submit(NAME, "1", "--queue", NAME),
        "HOOK": place.json("webhook", "add", URL, "--type", NAME)["webhookId"],
        "MADE": place.json("key", "create", NAME)["keyId"],
        "SCHEDULE": place.json("schedule", "add", "nightly", NAME, "1", "--every", "1h")["name"],
    }


def test_every_command_is_tried() -> None:
    tried = {words[:2] for words in COMMANDS} | {words[:1] for words in COMMANDS}
    assert [path for path in leaves(main) if path not in tried] == []


@pytest.mark.parametrize("format_", FORMATS)
def test_no_command_passes_on_what_steers_a_terminal(
    place: Place, hostile: dict[str, str], format_: str
) -> None:
    wrong = [
        f"{words!a}: {problem}"
        for words in COMMANDS
        for problem in problems(place, [hostile.get(word, word) for word in words], format_)
    ]
    assert not wrong, "\n".join(wrong)


def problems(place: Place, words: Sequence[str], format_: str) -> Iterator[str]:
    result = place.run("-o", format_, *words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        yield repr(result.exception)
    if STEERING.search(result.output):
        yield f"steers: {result.output!a}"
    if "\\u202e" not in result.output:
        yield f"shows nothing of a tenant: {result.output!a}"
    if format_ != "table" and result.exit_code == 0 and not is_json(result.stdout):
        yield f"is no JSON: {result.stdout!a}"


def is_json(text: str) -> bool:
    """One document, or one in each line."""
    for part in ([text], text.splitlines()):
        with suppress(json.JSONDecodeError):
            return all(json.loads(one) is not ... for one in part)
    return False


@pytest.mark.parametrize("format_", ["json", "jsonl"])
def test_json_is_the_same_for_its_reader(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": f"{TEXT}\ud800 größer ✓ \\u202e", TEXT: [TEXT]}
    output = Output(format_)
    output.one(row)
    assert json.loads(capsys.readouterr().out) == row
    output.line(row, Columns(("name",)))
    assert json.loads(capsys.readouterr().out) == row
    output.rows([row], Columns(("name",)), empty="")
    shown = json.loads(capsys.readouterr().out)
    assert shown == ([row] if format_ == "json" else row)


def test_a_cell_is_one_line_in_which_controls_are_written_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output("table").rows([{"name": "a\n\tb\x1b[2J\x9b\u202e"}], Columns(("name",)), empty="")
    assert capsys.readouterr().out.splitlines()[1] == r"a\n\tb\x1b[2J\x9b\u202e"


def test_an_export_of_the_audit_trail_still_verifies(place: Place, hostile: dict[str, str]) -> None:
    exported = place.run("audit", "export").stdout
    assert "\\u202e" in exported
    (place.folder / "trail.jsonl").write_text(exported, encoding="utf-8")
    assert place.run("audit", "verify", "--file", "trail.jsonl").exit_code == 0


def test_what_ends_a_command_unexpectedly_is_said_without_steering(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run("config", "show")
    assert sys.excepthook is say_crash
    try:
        raise RuntimeError(TEXT)
    except RuntimeError as error:
        sys.excepthook(RuntimeError, error, error.__traceback__)
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert not STEERING.search(said)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_of_progress_steers_only_as_we_mean_it(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    last, progress = LastLine(), ProgressLine()
    last.write(TEXT)
    last.end()
    progress.report(CopyProgress(TEXT, 0, None))
    progress.end()
    said = capsys.readouterr().err
    assert "\\u202e" in said
    assert not STEERING.search(said.replace("\r\x1b[K", ""))


def lines_of_logs(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        made = logging.LogRecord("shop", logging.INFO, "shop.py", 1, "%s", (text,), None)
        yield TextFormatter("%(message)s").format(made)


def test_a_line_of_a_log_steers_no_terminal() -> None:
    for line in lines_of_logs([TEXT, f"{TEXT}\ud800"]):
        assert not STEERING.search(line)
        assert "\\u202e" in line


def test_ids_that_are_nobodys_are_no_way_around(place: Place, hostile: dict[str, str]) -> None:
    result = place.run("job", "get", NOBODY)
    assert result.exit_code == 3
    assert "\\u202e" in result.stderr
    assert not STEERING.search(result.stderr)
