"""gantline queue, stats, sessions, doctor and db."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import NOBODY, UNCHECKED, Place, assert_refused

COUNTED = {"queued", "scheduled", "running", "completed", "failed", "poisoned", "cancelled"}
CHECKS = {"check", "found", "result", "advice"}


def test_queues_are_listed_with_their_counts(place: Place) -> None:
    place.submit("index", "1", "--queue", "docs")
    place.submit("index", "1", "--queue", "docs", "--delay", "60")
    place.dead()
    rows = {row["queue"]: row for row in place.json("queue", "list")}
    assert rows.keys() == {"docs", "default"}
    assert rows["docs"].keys() == COUNTED | {"queue", "paused", "maxDepth", "maxDepthPerTenant"}
    assert (rows["docs"]["queued"], rows["docs"]["scheduled"]) == (2, 1)  # of the queued
    for words in ("queue list", "stats", "type stats"):
        header, *lines = place.run(*words.split()).stdout.splitlines()
        (line,) = (one for one in lines if "docs" in one or one.startswith("index"))
        cells = dict(zip(header.split(), line.split(), strict=False))
        assert (cells["due"], cells["scheduled"]) == ("1", "1"), "a job is in one column"
    assert (rows["default"]["failed"], rows["default"]["paused"]) == (1, False)


def test_a_queue_stays_paused_until_it_is_resumed(empty_store: Place) -> None:
    def switched(verb: str) -> bool:
        row = empty_store.json("queue", verb, "docs")
        assert (row.keys(), row["queue"]) == ({"queue", "paused", "seen"}, "docs")
        paused: bool = row["paused"]
        return paused

    assert switched("pause")
    assert [row["paused"] for row in empty_store.json("queue", "list")] == [True]
    assert not switched("resume")
    assert empty_store.json("queue", "list") == []


def test_a_queue_is_capped_until_the_cap_is_taken_away(empty_store: Place) -> None:
    capped = empty_store.json("queue", "cap", "docs", "1")
    assert capped == {"queue": "docs", "maxDepth": 1, "maxDepthPerTenant": None, "seen": False}
    (row,) = empty_store.json("queue", "list")
    assert (row["queue"], row["maxDepth"], row["paused"]) == ("docs", 1, False)
    empty_store.submit("index", "1", "--queue", "docs")
    full = empty_store.run("job", "submit", "index", "1", "--queue", "docs")
    assert_refused(full, 1, "may wait in the queue 'docs'")
    free = empty_store.json("queue", "cap", "docs", "none")
    assert free == {"queue": "docs", "maxDepth": None, "maxDepthPerTenant": None, "seen": True}
    empty_store.submit("index", "1", "--queue", "docs")
    events = empty_store.json("audit", "list", "--action", "capQueue")
    assert [one["payload"]["details"]["maxDepth"] for one in events] == [None, 1]


def test_a_queue_is_capped_for_each_tenant_beside_all_of_them(empty_store: Place) -> None:
    capped = empty_store.json("queue", "cap", "docs", "none", "--per-tenant", "1")
    assert (capped["maxDepth"], capped["maxDepthPerTenant"]) == (None, 1)
    (row,) = empty_store.json("queue", "list")
    assert (row["queue"], row["maxDepth"], row["maxDepthPerTenant"]) == ("docs", None, 1)
    empty_store.submit("index", "1", "--queue", "docs")
    full = empty_store.run("job", "submit", "index", "1", "--queue", "docs")
    assert_refused(full, 1, "1 job of a tenant may wait in the queue 'docs'")
    other = empty_store.run("--tenant", "b", "job", "submit", "index", "1", "--queue", "docs")
    assert other.exit_code == 0
    assert empty_store.json("queue", "cap", "docs", "9")["maxDepthPerTenant"] == 1
    free = empty_store.json("queue", "cap", "docs", "9", "--per-tenant", "none")
    assert (free["maxDepth"], free["maxDepthPerTenant"]) == (9, None)
    events = empty_store.json("audit", "list", "--action", "capQueue")
    assert [one["payload"]["details"] for one in events] == [
        {"maxDepth": 9, "maxDepthPerTenant": None},
        {"maxDepth": 9},
        {"maxDepth": None, "maxDepthPerTenant": 1},
    ]


@pytest.mark.parametrize("words", [("--",), ("1", "--per-tenant")])
@pytest.mark.parametrize("cap", ["", "x", "-1", "1.5", "٣", "9" * 30])
def test_a_cap_that_is_no_number_of_jobs_is_refused(
    place: Place, words: tuple[str, ...], cap: str
) -> None:
    refused = place.run("queue", "cap", "docs", *words, cap)
    assert (refused.exit_code, "not a number of jobs" in refused.stderr) == (2, True)


@pytest.mark.parametrize("name", ["", "q" * 10_000, "a\nb", "\x00"], ids=repr)
def test_a_queue_that_cannot_be_is_not_paused(place: Place, name: str) -> None:
    assert_refused(place.run("queue", "pause", name[:10_000]), 2)


def test_stats_count_the_jobs_of_the_tenant(place: Place) -> None:
    place.dead("index", tenant_id="other")
    place.submit("index", "1")
    (row,) = place.json("stats")
    assert row.keys() == COUNTED | {"queue", "jobType", "oldestSeconds"}
    assert (row["queued"], row["failed"]) == (1, 0)
    assert row["oldestSeconds"] >= 0


def test_no_worker_is_no_session(empty_store: Place) -> None:
    assert empty_store.json("sessions") == []


def test_the_doctor_names_what_is_bad_and_what_to_do(place: Place) -> None:
    place.submit("index", "1")
    result = place.run("-o", "json", "doctor")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)
    assert all(row.keys() == CHECKS for row in rows)
    assert all(row["advice"] for row in rows if row["result"] == "bad")
    assert any("index" in row["advice"] for row in rows)
    assert result.stderr.startswith("gantline ")


def test_the_doctor_says_when_the_application_cannot_be_imported(place: Place) -> None:
    rows = json.loads(place.run("-o", "json", "--app", "nope:jobs", "doctor").stdout)
    assert rows[-1]["result"] == "bad"
    assert "nope" in rows[-1]["advice"]


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
@pytest.mark.parametrize(
    "words",
    [
        "job list",
        "dead list",
        "queue list",
        "queue pause docs",
        "queue resume docs",
        "db status",
        "stats",
        "type list",
        "type pause index",
        "type resume index",
        "type disable index --yes",
        "type enable index",
        "config show",
        "job submit index 1",
    ],
)
def test_every_command_prints_every_form(place: Place, words: str, form: str) -> None:
    place.submit("index", "1", "--queue", "docs")
    place.dead()
    result = place.run("-o", form, *words.split())
    assert (result.exit_code, result.stderr.replace(f"{UNCHECKED}\n", "")) == (0, "")
    match form:
        case "json":
            json.loads(result.stdout)
        case "jsonl":
            assert all(isinstance(json.loads(line), dict) for line in result.stdout.splitlines())
        case _:
            assert result.stdout


@pytest.mark.parametrize("words", ["job list", "sessions", "config show", "db status"])
def test_the_output_option_may_also_stand_after_the_command(empty_store: Place, words: str) -> None:
    """Where everybody types it."""
    result = empty_store.run(*words.split(), "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert isinstance(json.loads(result.stdout), list)


def test_a_form_that_does_not_exist_is_refused_as_usage(place: Place) -> None:
    assert place.run("-o", "xml", "job", "list").exit_code == 2


def test_a_status_before_the_first_use_creates_nothing(place: Place) -> None:
    assert not any(row["applied"] for row in place.json("db", "status"))
    assert not place.database.exists()


def test_a_migrated_store_has_had_every_migration(place: Place) -> None:
    for _ in range(2):
        result = place.run("db", "migrate")
        assert result.exit_code == 0
        assert result.stderr
    rows = place.json("db", "status")
    assert all(row["applied"] for row in rows)
    assert all(row.keys() == {"number", "name", "applied", "checksum"} for row in rows)


def test_the_printed_sql_makes_the_schema(place: Place) -> None:
    def made_by(*numbers: str) -> set[tuple[str, str]]:
        with closing(sqlite3.connect(":memory:")) as connection:
            for words in numbers:
                result = place.run("db", "sql", *words.split())
                assert (result.exit_code, result.stderr) == (0, "")
                connection.executescript(result.stdout)
            return set(connection.execute("SELECT name, sql FROM sqlite_schema"))

    whole = made_by("")
    assert "gantline_job" in {name for name, _ in whole}
    numbers = [str(row["number"]) for row in place.json("db", "status")]
    assert made_by(*numbers) == whole


def test_the_sql_of_a_migration_that_is_not_there_is_3(place: Place) -> None:
    assert_refused(place.run("db", "sql", "99"), 3, "99")


def test_the_status_of_a_file_that_is_not_ours_yet_is_nothing_applied(place: Place) -> None:
    """The file may be the application's own."""
    with closing(sqlite3.connect(place.database)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert not any(row["applied"] for row in place.json("db", "status"))


NEWER = "INSERT INTO gantline_migration VALUES (99, 'future', 'x', 99, '2030-01-01T00:00:00Z')"


def newer(place: Place) -> str:
    place.run("db", "migrate")
    with closing(sqlite3.connect(place.database)) as connection, connection:
        connection.execute(NEWER)
    return "sqlite:///gantline.db"


def no_database(place: Place) -> str:
    place.database.write_bytes(b"not a database at all" * 100)
    return "sqlite:///gantline.db"


BAD_STORES: dict[str, Any] = {
    "unknown scheme": lambda place: "nope://x",
    "no scheme": lambda place: "gantline.db",
    "empty": lambda place: "",
    "no file": lambda place: "sqlite://",
    "host": lambda place: "sqlite://host/x",
    "bad port": lambda place: "sqlite://[x/y",
    "unknown option": lambda place: "sqlite:///gantline.db?nope=1",
    "folder": lambda place: f"sqlite:///{place.folder}",
    "missing folder": lambda place: "sqlite:///missing/gantline.db",
    "unwritable folder": lambda place: "sqlite:////proc/gantline.db",
    "long name": lambda place: f"sqlite:///{'x' * 300}.db",
    "no database": no_database,
    "newer schema": newer,
}


@pytest.mark.parametrize("kind", BAD_STORES)
@pytest.mark.parametrize("words", ["job list", "db migrate", "job submit index 1", "stats"])
def test_a_store_that_cannot_be_used_is_5(place: Place, words: str, kind: str) -> None:
    assert_refused(place.run("--store", BAD_STORES[kind](place), *words.split()), 5)


@pytest.mark.parametrize("kind", BAD_STORES)
def test_the_doctor_has_advice_for_a_store_that_cannot_be_used(place: Place, kind: str) -> None:
    result = place.run("-o", "json", "--store", BAD_STORES[kind](place), "doctor")
    assert result.exit_code == 5
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize(
    "kind", [kind for kind in BAD_STORES if kind not in ("missing folder", "unwritable folder")]
)
def test_the_status_of_a_store_that_cannot_be_used_is_no_traceback(place: Place, kind: str) -> None:
    result = place.run("--store", BAD_STORES[kind](place), "db", "status")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 5)


def test_a_newer_schema_is_told_with_the_next_step(place: Place) -> None:
    assert_refused(place.run("--store", newer(place), "job", "list"), 5, "Upgrade")


def test_a_status_shows_a_migration_that_this_version_does_not_know(place: Place) -> None:
    newer(place)
    assert 99 in [row["number"] for row in place.json("db", "status")]


def test_a_store_without_a_schema_has_no_status(place: Place) -> None:
    assert_refused(place.run("--store", "memory://", "db", "status"), 5, "schema")


LOOKING = [
    "job list",
    f"job get {NOBODY}",
    f"job watch {NOBODY}",
    f"job cancel {NOBODY}",
    f"job redrive {NOBODY}",
    "dead list",
    f"dead show {NOBODY}",
    "dead redrive --all --yes",
    "dead discard --all --yes",
    "queue list",
    "queue pause docs",
    "queue resume docs",
    "type list",
    "type pause index",
    "type disable index --yes",
    "stats",
    "sessions",
    "doctor",
]


@pytest.mark.parametrize("words", LOOKING)
def test_looking_at_a_file_that_is_not_there_is_5_and_does_not_make_it(
    place: Place, words: str
) -> None:
    result = place.run(*words.split())
    assert (result.exit_code, result.stdout) == (5, "")
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"Error: There is no store file {place.database} (the default).")
    assert error.endswith("Or name a store by --store.")
    assert list(Path().iterdir()) == []


def test_looking_does_not_make_our_tables_in_a_database_of_somebody_else(place: Place) -> None:
    with closing(sqlite3.connect(place.database)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert_refused(place.run("job", "list"), 5, "no schema of ours", "Name your application")
    with closing(sqlite3.connect(place.database)) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    assert names == {"theirs"}


@pytest.mark.parametrize("words", ["db migrate --plan", "db status", "db sql"])
def test_looking_at_the_schema_does_not_make_it(place: Place, words: str) -> None:
    assert place.run(*words.split()).exit_code == 0
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("words", ["db migrate", "job submit index 1"])
def test_a_store_is_made_by_what_fills_it(place: Place, words: str) -> None:
    assert place.run(*words.split()).exit_code == 0
    assert place.database.exists()


def test_a_queue_is_paused_for_every_tenant_and_counted_for_one(place: Place) -> None:
    place.submit("index", "1", "--queue", "docs")
    assert place.run("queue", "pause", "docs").exit_code == 0
    (mine,) = place.json("queue", "list")
    (theirs,) = place.json("--tenant", "other", "queue", "list")
    assert (mine["queue"], mine["queued"], mine["paused"]) == ("docs", 1, True)
    assert (theirs["queue"], theirs["queued"], theirs["paused"]) == ("docs", 0, True)
