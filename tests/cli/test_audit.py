"""gantline audit: what commands do is written down; the trail is read, proved, kept and pruned."""

import json
import os
import pwd
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gantline.audit.chain import FIRST_PREVIOUS, NewAuditEvent, chain_event
from gantline.audit.verification import Removed, encode_line
from gantline.auth.peppers import PEPPER_VARIABLE
from tests.cli.conftest import Place, assert_bad_option, assert_refused
from tests.cli.test_keys import PEPPER

FUTURE = "2100-01-01"


@pytest.fixture(autouse=True)
def store(empty_store: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEPPER_VARIABLE, PEPPER)


def trail(place: Place, *words: str) -> list[dict[str, Any]]:
    """Oldest first."""
    found: list[dict[str, Any]] = place.json("audit", "list", *words)
    return found[::-1]


def change(place: Place, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(place.database)) as connection:
        connection.execute(statement, values)
        connection.commit()


def rewrite(place: Place, old: str, new: str) -> None:
    """Change the text of the trail in the database itself."""
    changed = "CAST(replace(CAST(value AS TEXT), ?, ?) AS BLOB)"
    where = "WHERE namespace = 'audit'"
    change(place, f"UPDATE gantline_record SET value = {changed} {where}", old, new)  # noqa: S608


def paused(place: Place, count: int) -> None:
    for number in range(count):
        place.json("queue", "pause", f"q{number}")


# -- what is written down --------------------------------------------------------------------------


def test_every_command_that_changes_something_is_written_down(place: Place) -> None:
    waiting = place.submit("t")
    dead = [place.dead() for _ in range(3)]
    place.json("job", "cancel", waiting)
    place.json("job", "redrive", waiting)
    place.json("queue", "pause", "q")
    place.json("queue", "resume", "q")
    place.json("type", "pause", "t")
    place.json("type", "resume", "t")
    place.json("type", "disable", "t", "--yes")
    place.json("type", "enable", "t")
    place.json("dead", "redrive", "--type", "broken", "--limit", "2", "--yes")
    place.json("dead", "discard", "--all", "--yes")
    key = place.json("key", "create", "ci", "--role", "viewer", "--subject", "person")["keyId"]
    place.json("key", "rotate", key)
    place.json("key", "revoke", key, "--yes")
    events = trail(place)
    assert [(event["type"], event["aggregate"]) for event in events] == [
        ("cancelJob", f"job:{waiting}"),
        ("redriveJob", f"job:{waiting}"),
        ("pauseQueue", "queue:q"),
        ("resumeQueue", "queue:q"),
        ("pauseJobType", "type:t"),
        ("resumeJobType", "type:t"),
        ("disableJobType", "type:t"),
        ("enableJobType", "type:t"),
        ("redriveDeadLetters", "dead-letters"),
        ("redriveDeadLetters", f"job:{dead[2]}"),
        ("redriveDeadLetters", f"job:{dead[1]}"),
        ("deleteJob", f"job:{dead[0]}"),
        ("createKey", f"key:{key}"),
        ("rotateKey", f"key:{key}"),
        ("revokeKey", f"key:{key}"),
    ]
    assert {event["payload"]["outcome"] for event in events} == {"allowed"}
    asked = {"filter": {"jobTypes": ["broken"]}, "matching": 2}
    assert events[8]["payload"]["details"] == asked
    granted = events[12]["payload"]["details"]
    assert (granted["name"], granted["roles"], granted["subjects"]) == ("ci", ["viewer"], 1)
    text = json.dumps(events)
    assert "hush" not in text
    assert "person" not in text
    assert "gl_" not in text


def test_who_did_it_is_told_with_his_host(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    paused(place, 1)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert trail(place)[0]["actor"] == f"cli:{user}@here"


def test_no_variable_says_who_did_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "somebody-else")
    paused(place, 1)
    assert "somebody-else" not in trail(place)[0]["actor"]


def test_a_user_without_a_name_is_a_number(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    paused(place, 1)
    assert trail(place)[0]["actor"].startswith(f"cli:{os.getuid()}@")


def test_a_redrive_that_matches_nothing_is_written_down(place: Place) -> None:
    assert place.json("dead", "redrive", "--type", "t", "--yes") == {"matching": 0}
    (event,) = trail(place)
    assert (event["type"], event["aggregate"]) == ("redriveDeadLetters", "dead-letters")
    assert event["payload"]["details"] == {"filter": {"jobTypes": ["t"]}, "matching": 0}
    place.json("dead", "redrive", "--all", "--dry-run")
    assert len(trail(place)) == 1


def test_looking_is_not_written_down(place: Place) -> None:
    place.submit("t")
    for words in (["job", "list"], ["queue", "list"], ["key", "list"], ["stats"]):
        place.json(*words)
    assert trail(place) == []


def test_what_cannot_be_written_down_is_not_done(place: Place) -> None:
    job_id = place.submit("t")
    place.json("queue", "pause", "q")
    change(place, "UPDATE gantline_record SET value = x'00' WHERE namespace = 'audit'")
    result = place.run("job", "cancel", job_id)
    assert_refused(result, 5, "cannot be read", "gantline audit verify")
    assert place.status(job_id) == "Queued"
    assert_refused(place.run("key", "create", "ci"), 5, "cannot be read")
    assert place.json("key", "list") == []


def test_the_sink_of_the_application_is_used(place: Place) -> None:
    (place.folder / "shop.py").write_text(
        "from gantline import AuditSettings, Gantline\n"
        "class Mine:\n"
        "    async def record(self, entry):\n"
        "        print(entry.operation, entry.what)\n"
        "jobs = Gantline('sqlite:///gantline.db', audit=AuditSettings(sink=Mine()))\n",
        encoding="utf-8",
    )
    with place.process("--app", "shop:jobs", "queue", "pause", "q") as program:
        assert program.exit_code() == 0
    assert program.stdout.startswith("pauseQueue queue:q\n")
    assert trail(place) == []


# -- reading ---------------------------------------------------------------------------------------


def test_the_newest_come_first_and_fit_a_table(place: Place) -> None:
    paused(place, 3)
    result = place.run("audit", "list", "--limit", "2")
    header, *lines = result.stdout.splitlines()
    assert header.split()[:3] == ["version", "happenedAt", "actor"]
    assert [line.split()[0] for line in lines] == ["3", "2"]
    assert "queue:q2" in lines[0]


def test_it_is_filtered(place: Place) -> None:
    paused(place, 3)
    place.json("queue", "resume", "q1")
    assert [event["version"] for event in trail(place, "--aggregate", "queue:q1")] == [2, 4]
    assert [event["version"] for event in trail(place, "--action", "resumeQueue")] == [4]
    assert len(trail(place, "--action", "queues:manage")) == 4
    assert trail(place, "--actor", "nobody") == []
    assert len(trail(place, "--since", "1h")) == 4
    assert trail(place, "--since", FUTURE) == []
    assert_bad_option(place.run("audit", "list", "--since", "yesterday"), "--since")


def test_nothing_is_told_as_nothing(place: Place) -> None:
    result = place.run("audit", "list")
    assert "has nothing of this" in result.stderr
    result = place.run("audit", "verify", "--all-tenants")
    assert (result.exit_code, "no audit trail yet" in result.stderr) == (0, True)


def test_tenants_are_told_apart(place: Place) -> None:
    paused(place, 2)
    place.json("--tenant", "shop", "queue", "pause", "q")
    assert len(trail(place, "--tenant", "shop")) == 1
    everything = trail(place, "--all-tenants")
    assert {event["tenantId"] for event in everything} == {"default", "shop"}
    result = place.run("audit", "verify", "--all-tenants")
    assert result.exit_code == 0
    assert "The tenant 'default': 2 events (1 to 2), unbroken." in result.stderr
    assert "The tenant 'shop': 1 event (1 to 1), unbroken." in result.stderr


# -- proving ---------------------------------------------------------------------------------------


def test_what_was_changed_is_named_and_the_exit_code_says_so(place: Place) -> None:
    paused(place, 3)
    assert place.run("audit", "verify").exit_code == 0
    rewrite(place, "queue:q1", "queue:qX")
    result = place.run("-o", "json", "audit", "verify")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)
    assert (finding["version"], finding["what"]) == (2, "edited")
    assert (finding["tenantId"], finding["aggregate"]) == ("default", "queue:qX")
    table = place.run("audit", "verify")
    assert table.exit_code == 1
    assert "edited" in table.stdout


def test_what_no_hash_covers_is_found_in_the_store_and_in_an_export(place: Place) -> None:
    paused(place, 3)
    exported = place.folder / "trail.jsonl"
    exported.write_text(place.run("audit", "export").stdout, encoding="utf-8")
    rewrite(place, '"aggregate":"queue:q1"', '"note":"x","aggregate":"queue:q1"')
    lines = exported.read_text(encoding="utf-8")
    twice = lines.replace('"aggregate":"queue:q1"', '"actor":"x","aggregate":"queue:q1"')
    exported.write_text(twice, encoding="utf-8")
    for words in ([], ["--file", str(exported)]):
        result = place.run("-o", "json", "audit", "verify", *words)
        (finding,) = json.loads(result.stdout)
        assert (result.exit_code, finding["what"]) == (1, "edited")
        assert "has members that no event has, or one twice" in finding["detail"]
    assert "members that no event has" in place.run("audit", "list").stderr


def test_an_export_is_proved_without_the_store(place: Place) -> None:
    paused(place, 3)
    place.json("--tenant", "shop", "queue", "pause", "q")
    exported = place.run("audit", "export", "--all-tenants")
    assert exported.exit_code == 0
    lines = exported.stdout.splitlines(keepends=True)
    file = place.folder / "trail.jsonl"
    place.database.unlink()

    def verify(kept: list[str]) -> tuple[int, list[tuple[str, str, int | None]]]:
        file.write_text("".join(kept), encoding="utf-8")
        result = place.run("-o", "json", "audit", "verify", "--file", str(file))
        found = json.loads(result.stdout)
        named = [(one["tenantId"], one["what"], one["version"]) for one in found]
        return result.exit_code, named

    assert verify(lines) == (0, [])
    assert verify([lines[0], *lines[2:]]) == (1, [("default", "missing", 2)])
    swapped = [lines[1], lines[0], *lines[2:]]
    assert verify(swapped) == (1, [("default", "reordered", 2)])
    edited = lines[1].replace("queue:q1", "queue:q9")
    assert verify([lines[0], edited, *lines[2:]]) == (1, [("default", "edited", 2)])
    assert verify([*lines[:3], "{}\n", lines[3]])[0] == 1
    assert_refused(place.run("audit", "verify", "--file", "none.jsonl"), 2, "none.jsonl")


def test_a_cut_tail_shows_against_a_checkpoint(place: Place) -> None:
    paused(place, 3)
    kept = place.folder / "checkpoint.jsonl"
    kept.write_text(place.run("audit", "checkpoint").stdout, encoding="utf-8")
    paused(place, 1)
    assert place.run("audit", "verify", "--checkpoint", str(kept)).exit_code == 0
    change(place, "DELETE FROM gantline_record WHERE namespace = 'audit' AND key LIKE '%5'")
    change(place, "DELETE FROM gantline_record WHERE namespace = 'audit' AND key LIKE '%6'")
    assert place.run("audit", "verify").exit_code == 0
    result = place.run("-o", "json", "audit", "verify", "--checkpoint", str(kept))
    (finding,) = json.loads(result.stdout)
    assert (result.exit_code, finding["what"], finding["version"]) == (1, "tail-cut", 3)
    change(place, "DELETE FROM gantline_record WHERE namespace = 'audit'")
    result = place.run("-o", "json", "audit", "verify", "--all-tenants", "--checkpoint", str(kept))
    (finding,) = json.loads(result.stdout)
    assert (finding["what"], finding["version"], finding["lastVersion"]) == ("tail-cut", 1, 3)
    kept.write_text("{}", encoding="utf-8")
    refused = place.run("audit", "verify", "--checkpoint", str(kept))
    assert_refused(refused, 2, "Line 1", "gantline audit checkpoint")


def test_an_export_is_a_checkpoint_too(place: Place) -> None:
    paused(place, 3)
    kept = place.folder / "trail.jsonl"
    kept.write_text(place.run("audit", "export").stdout, encoding="utf-8")
    change(place, "DELETE FROM gantline_record WHERE namespace = 'audit' AND key LIKE '%6'")
    result = place.run("audit", "verify", "--checkpoint", str(kept))
    assert (result.exit_code, "tail-cut" in result.stdout) == (1, True)


def test_a_damaged_trail_is_exported_as_far_as_it_goes(place: Place) -> None:
    paused(place, 3)
    change(
        place,
        "UPDATE gantline_record SET value = x'00' WHERE namespace = 'audit' AND key LIKE '%7'",
    )
    result = place.run("audit", "export")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 2)
    assert "cannot be read" in result.stderr
    listed = place.run("-o", "json", "audit", "list")
    assert [event["version"] for event in json.loads(listed.stdout)] == [3, 1]
    assert "cannot be read" in listed.stderr


def test_long_work_tells_how_far_it_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantline.cli.audit._REPORT_EVERY", 2)
    paused(place, 5)
    assert "4 events verified" in place.run("audit", "verify").stderr
    assert "4 events looked at" in place.run("audit", "list").stderr
    assert "4 events exported" in place.run("audit", "export").stderr


# -- pruning ---------------------------------------------------------------------------------------


def test_pruning_asks_and_keeps_what_is_young_or_changed(place: Place) -> None:
    """What is old is made in tests/audit, where time is."""
    paused(place, 3)
    assert_refused(place.run("audit", "prune", "--before", "0s", "--yes"), 2, "an hour")
    assert_refused(place.run("audit", "prune", "--before", "2h"), 2, "--yes")
    assert place.json("audit", "prune", "--before", "2h", "--yes") == [
        {"tenantId": "default", "count": 0, "through": None, "findings": 0}
    ]
    rewrite(place, '"time":"2', '"time":"1')
    result = place.run("-o", "json", "audit", "prune", "--before", "400d", "--yes")
    assert (result.exit_code, json.loads(result.stdout)[0]["findings"]) == (1, 3)
    assert "evidence" in result.stderr
    assert len(trail(place)) == 3


def test_a_file_that_has_lost_a_whole_trail_is_found_by_a_checkpoint(place: Place) -> None:
    paused(place, 3)
    kept, file = place.folder / "checkpoint.jsonl", place.folder / "trail.jsonl"
    kept.write_text(place.run("audit", "checkpoint").stdout, encoding="utf-8")
    file.write_text("", encoding="utf-8")
    words = ("-o", "json", "audit", "verify", "--file", str(file), "--checkpoint", str(kept))
    for more in ((), ("--all-tenants",)):
        result = place.run(*words, *more)
        (finding,) = json.loads(result.stdout)
        assert result.exit_code == 1
        assert (finding["what"], finding["version"], finding["lastVersion"]) == ("tail-cut", 1, 3)
    other = place.run("--tenant", "other", "queue", "pause", "q")
    assert other.exit_code == 0
    file.write_text(place.run("--tenant", "other", "audit", "export").stdout, encoding="utf-8")
    assert place.run(*words).exit_code == 0, "a file may be of one tenant only"
    assert place.run(*words, "--all-tenants").exit_code == 1


DEEP = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
HOSTILE = {
    "deep": ('"payload":{', f'"payload":{{"z":{DEEP},'),
    "long": ('"payload":{', '"payload":{"z":"' + "x" * 3_000_000 + '",'),
    "no text": ('"payload":{', '"payload":{"z":"\\ud800",'),
    "a number": ('"payload":{', '"payload":{"z":' + "9" * 5000 + ","),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_is_in_a_file_is_a_finding_and_no_crash(place: Place, what: str) -> None:
    paused(place, 3)
    newest, *older = place.run("audit", "export").stdout.splitlines(keepends=True)
    old, new = HOSTILE[what]
    file, kept = place.folder / "trail.jsonl", place.folder / "checkpoint.jsonl"
    file.write_text("".join([newest, older[0].replace(old, new, 1), older[1]]), encoding="utf-8")
    result = place.run("-o", "json", "audit", "verify", "--file", str(file))
    assert result.exit_code == 1
    assert "edited" in {finding["what"] for finding in json.loads(result.stdout)}
    assert len(result.stdout) < 10_000
    kept.write_text(older[0].replace(old, new, 1), encoding="utf-8")
    refused = place.run("audit", "verify", "--checkpoint", str(kept))
    assert refused.exit_code in (0, 2), "an event is a checkpoint, whatever else is in it"


def test_times_without_a_zone_are_none(place: Place) -> None:
    """They compare to none of ours."""
    paused(place, 1)
    kept = place.folder / "checkpoint.jsonl"
    text = place.run("audit", "checkpoint").stdout
    kept.write_text(text.replace('Z"', '"'), encoding="utf-8")
    refused = place.run("audit", "verify", "--checkpoint", str(kept))
    assert_refused(refused, 2, "Line 1")


def test_a_trail_says_nothing_to_the_terminal(place: Place) -> None:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    first = chain_event(
        NewAuditEvent(aggregate="", type="", actor="", payload={}),
        tenant_id="default",
        version=1,
        time=day,
        previous_hash=FIRST_PREVIOUS,
    )
    removed = Removed(last=first.sealed, count=1, before=day + timedelta(hours=1))
    details = msgspec.to_builtins(removed)
    new = NewAuditEvent(
        aggregate="audit", type="pruneAudit", actor="\x07", payload={"details": details}
    )
    forged = chain_event(
        new,
        tenant_id="default",
        version=2,
        time=day + timedelta(hours=2),
        previous_hash=first.hash,
    )
    file = place.folder / "trail.jsonl"
    file.write_bytes(encode_line(forged))
    result = place.run("audit", "verify", "--file", str(file))
    assert result.exit_code == 0
    assert "removed by" in result.stderr
    assert "\x07" not in result.stderr
