"""gantline doctor: what it looks at, what it says is wrong, and what it advises."""

import json
import platform
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.outcome import ErrorInfo
from gantline.contract.query import LaneRequest
from gantline.contract.status import Reason
from gantline.contract.store import JobStore
from gantline.contract.transition import Transition
from gantline.contract.version import __version__
from gantline.flow.limits import Limits
from gantline.manager.relay import OUTBOX
from gantline.manager.sessions import Session, register
from gantline.testing.factories import make_new, register_sessions
from tests.cli.conftest import Place
from tests.servers.postgres import PostgresServer

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def checked(place: Place, *flags: str) -> dict[str, dict[str, str]]:
    """The checks by what they look at, and nothing on stdout but them."""
    result = place.run("-o", "json", *flags, "doctor")
    assert result.exit_code in (0, 1), result.stderr
    rows: list[dict[str, str]] = json.loads(result.stdout)
    is_bad = any(row["result"] == "bad" for row in rows)
    assert result.exit_code == (1 if is_bad else 0)
    return {row["check"]: row for row in rows}


def a_worker(place: Place, *, queue: str, job_type: str, draining: bool = False) -> None:
    async def registered(store: JobStore) -> None:
        session = Session(
            session_id=uuid4().hex,
            host="host",
            pid=1,
            version="1",
            started_at=NOW,
            last_seen_at=NOW,
            queues={queue: 1},
            job_types=(job_type,),
            draining=draining,
        )
        await register(store, session)

    place.stored(registered)


AN_HOUR_AHEAD = """
CREATE OR REPLACE FUNCTION micros() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 3600000000
$$
"""
SERVED = "every waiting job has a worker"
HELD = "no waiting job is held back by a switch"


def test_the_versions_are_told_before_the_store_is_opened(place: Place) -> None:
    said = place.run("doctor").stderr.splitlines()[0]
    assert said == f"gantline {__version__}, Python {platform.python_version()}"


def test_the_software_of_a_sqlite_store_is_named(empty_store: Place) -> None:
    assert f"the store is SQLite {sqlite3.sqlite_version}" in checked(empty_store)


def test_the_software_of_a_postgresql_store_is_named(
    place: Place, postgres: PostgresServer
) -> None:
    flags = ("--store", postgres.url(schema=f"w{uuid4().hex}"))
    place.run(*flags, "db", "migrate")
    with psycopg.connect(postgres.url()) as connection:
        row = connection.execute("SHOW server_version").fetchone()
    assert row is not None
    software = f"the store is PostgreSQL {row[0]} with psycopg {psycopg.__version__}"
    assert software in checked(place, *flags)


def test_a_clock_that_differs_is_told_by_how_much(place: Place, postgres: PostgresServer) -> None:
    schema = f"w{uuid4().hex}"
    flags = ("--store", postgres.url(schema=schema))
    place.run(*flags, "db", "migrate")
    (name,) = [name for name in checked(place, *flags) if name.startswith("the clocks")]
    assert re.fullmatch(r"the clocks of store and host differ by \d\.\d s", name)
    with psycopg.connect(postgres.url()) as connection:
        connection.execute(f"SET search_path TO {schema}".encode())
        connection.execute(AN_HOUR_AHEAD)
    (row,) = [row for name, row in checked(place, *flags).items() if name.startswith("the clocks")]
    assert re.search(r"differ by 3(599|600)\.\d s", row["check"])
    assert (row["result"], "NTP" in row["advice"]) == ("bad", True)


@pytest.mark.parametrize(
    ("switch", "advice"),
    [
        ("queue pause docs", "2 jobs in the paused queue docs: gantline queue resume docs."),
        ("type pause index", "2 jobs of the paused type index: gantline type resume index."),
        (
            "type disable index --yes",
            "2 jobs of the disabled type index will fail: gantline type enable index.",
        ),
    ],
)
def test_jobs_that_a_switch_holds_back_are_told_with_the_command_that_lets_them_go(
    place: Place, switch: str, advice: str
) -> None:
    for _ in range(2):
        place.submit("index", "1", "--queue", "docs")
    a_worker(place, queue="docs", job_type="index")
    assert checked(place)[HELD]["result"] == "ok"
    place.run(*switch.split())
    row = checked(place)[HELD]
    assert (row["result"], row["advice"]) == ("warn", advice)
    place.run(*advice.rpartition(": gantline ")[2].removesuffix(".").split())
    assert checked(place)[HELD]["result"] == "ok"


def test_a_switch_that_holds_nothing_back_is_not_talked_about(empty_store: Place) -> None:
    empty_store.run("queue", "pause", "docs")
    assert checked(empty_store)[HELD]["result"] == "ok"


@pytest.mark.parametrize(
    ("worker", "result"),
    [
        ({"queue": "docs", "job_type": "index"}, "ok"),
        ({"queue": "docs", "job_type": "other"}, "bad"),
        ({"queue": "default", "job_type": "index"}, "bad"),
        ({"queue": "docs", "job_type": "index", "draining": True}, "bad"),
        (None, "bad"),
    ],
    ids=["served", "another type", "another queue", "draining", "none"],
)
def test_a_job_that_no_live_worker_would_take_is_told(
    place: Place, worker: dict[str, Any] | None, result: str
) -> None:
    place.submit("index", "1", "--queue", "docs")
    if worker is not None:
        a_worker(place, **worker)
    row = checked(place)[SERVED]
    assert row["result"] == result
    assert row["advice"] == ("" if result == "ok" else "No live worker serves index in docs.")


def test_what_is_wrong_is_told_as_what_was_found(place: Place) -> None:
    place.submit("index", "1", "--queue", "docs")
    place.run("queue", "pause", "docs")
    lines = place.run("doctor").stdout.splitlines()
    found = [line.split("  ") for line in lines if line.startswith(("bad", "warn"))]
    assert [[part.strip() for part in row if part.strip()][:2] for row in found] == [
        ["bad", "no live worker"],
        ["bad", "1 waiting job without a worker"],
        ["warn", "a switch holds waiting jobs back"],
    ]


def test_of_many_jobs_without_a_worker_a_few_are_named(place: Place) -> None:
    for number in range(7):
        place.submit(f"type-{number}", "1")
    assert checked(place)[SERVED]["advice"].endswith("type-4 in default and 2 more.")


def test_a_warning_alone_is_no_failure(place: Place) -> None:
    place.submit("index", "1")
    a_worker(place, queue="default", job_type="index")
    place.run("queue", "pause", "default")
    result = place.run("-o", "json", "doctor")
    assert (result.exit_code, '"warn"' in result.stdout) == (0, True)


def test_the_doctor_speaks_of_the_store_though_the_application_cannot_be_imported(
    empty_store: Place,
) -> None:
    flags = ("--app", "nope:jobs", "--store", "sqlite:///gantline.db")
    rows = checked(empty_store, *flags)
    assert rows["the application imports"]["result"] == "bad"
    assert any(name.startswith("jobs are kept in") for name in rows)


def test_a_variable_that_looks_like_a_setting_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the store that it was to name is never looked at, and nobody says so."""
    place.run("db", "migrate")
    monkeypatch.setenv("GANTLINE_STOER", "sqlite:///other.db")
    monkeypatch.setenv("GANTLINE_LOGFORMAT", "json")
    monkeypatch.setenv("GANTLINE_API_KEY", "no setting, and like none")
    told = {name: row["advice"] for name, row in checked(place).items() if row["result"] == "warn"}
    assert told["GANTLINE_STOER is a setting"] == "Did you mean GANTLINE_STORE?"
    assert told["GANTLINE_LOGFORMAT is a setting"] == "Did you mean GANTLINE_LOG_FORMAT?"
    assert not any("API_KEY" in name for name in told)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("renew_seconds", "20"),
        ("processes", "many"),
        ("log_format", "xml"),
        ("queues", "docs:0"),
        ("health", "here"),
        ("rate_limit_per_key", "often"),
        ("trusted_proxies", "everybody"),
    ],
)
def test_a_setting_that_a_worker_or_a_server_would_refuse_is_reported(
    empty_store: Place, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    accepted = "the settings are accepted"
    assert checked(empty_store)[accepted]["result"] == "ok"
    monkeypatch.setenv(f"GANTLINE_{name.upper()}", text)
    row = checked(empty_store)[accepted]
    assert (row["result"], row["found"]) == ("bad", "1 setting NOT accepted")
    assert repr(text) in row["advice"]


DURABLE = """
from gantline import Gantline, StorageSettings
jobs = Gantline("sqlite:///gantline.db?sync={sync}", storage=StorageSettings(durability="{asked}"))
"""


@pytest.mark.parametrize(
    ("sync", "asked", "result", "found"),
    [
        ("normal", "none", "bad", "durability is process, which does NOT survive a power cut"),
        ("normal", "process", "ok", "durability is process, and process is required"),
        (
            "normal",
            "power_loss",
            "bad",
            "durability is process, which is NOT the power_loss that the application requires",
        ),
        ("full", "power_loss", "ok", "durability is power_loss, and power_loss is required"),
        ("full", "none", "ok", "durability is power_loss"),
    ],
)
def test_what_the_store_promises_is_held_to_what_the_application_requires(
    empty_store: Place, sync: str, asked: str, result: str, found: str
) -> None:
    module = f"durable_{sync}_{asked}"
    (empty_store.folder / f"{module}.py").write_text(DURABLE.format(sync=sync, asked=asked))
    rows = checked(empty_store, "--app", f"{module}:jobs")
    (row,) = [row for name, row in rows.items() if name.startswith("durability is")]
    assert (row["result"], row["found"]) == (result, found)


@pytest.mark.parametrize(("late", "result"), [(4, "ok"), (12, "warn")])
def test_old_jobs_that_nobody_removes_are_reported(place: Place, late: int, result: str) -> None:
    place.run("job", "cancel", place.submit("index", "1"))
    ended = timedelta(days=90, minutes=late, seconds=30) // timedelta(microseconds=1)
    with sqlite3.connect(place.database) as connection:
        connection.execute("UPDATE gantline_log SET at = at - ?", (ended,))
    row = checked(place)["old jobs are removed in time"]
    assert row["result"] == result
    assert result == "ok" or "should have been gone 12 minutes ago" in row["advice"]


def test_jobs_that_do_not_leave_the_outbox_are_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.make_store()
    outbox = Place(place.folder)
    outbox.database = place.folder / "shop.db"
    leaving, taken = (
        f"jobs leave the outbox {outbox.database}",
        "all that left the outbox was taken",
    )
    monkeypatch.setenv("GANTLINE_OUTBOX", f"sqlite:///{outbox.database}")
    assert checked(place)["the outbox can be opened"]["result"] == "bad"

    async def put(store: JobStore) -> None:
        await store.insert([make_new(job_type=OUTBOX, queue=OUTBOX)])

    async def refuse(store: JobStore) -> None:
        requests = [LaneRequest(OUTBOX, (OUTBOX,), 1)]
        await register_sessions(store, "relay")
        (run,) = await store.claim("relay", uuid4(), requests, lease=timedelta(minutes=1))
        error = ErrorInfo("IDEMPOTENCY_CONFLICT", "taken")
        await store.apply([Transition.failed(run, error, Reason.PERMANENT_ERROR)])

    outbox.stored(put)
    assert {checked(place)[name]["result"] for name in (leaving, taken)} == {"ok"}
    monkeypatch.setattr("gantline.cli.doctor._MOVED_WITHIN", timedelta(0))
    stuck = checked(place)[leaving]
    assert stuck["result"] == "bad"
    assert "1 job there" in stuck["advice"]
    outbox.stored(refuse)
    rows = checked(place)
    assert (rows[leaving]["result"], rows[taken]["result"]) == ("ok", "warn")
    assert "dead list" in rows[taken]["advice"]


@pytest.mark.parametrize(
    ("flow", "advice"),
    [
        (TypeFlow(job_type="mail", running_in_all=1), "1 job of mail for room in the limit"),
        (TypeFlow(job_type="mail", running=1), "1 job of mail for room in the limits of their"),
        (TypeFlow(job_type="mail", gate=Gate("api", 0.001)), "1 job of mail for its gate to open"),
    ],
)
def test_a_limit_that_holds_jobs_back_for_long_is_named(
    empty_store: Place, flow: TypeFlow, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = "no limit holds jobs back for long"
    assert what not in checked(empty_store)  # no type has limits
    requests = [LaneRequest("default", ("mail",), 1, flow=(flow,))]

    async def begin(store: JobStore) -> None:
        await Limits(store).declare([flow])
        await register_sessions(store, "session")
        await store.insert([make_new(job_type="mail", group="ann") for _ in range(2)])
        await store.claim("session", uuid4(), requests, lease=timedelta(hours=1))

    empty_store.stored(begin)
    assert checked(empty_store)[what]["result"] == "ok"
    monkeypatch.setattr("gantline.cli.doctor._STARTED_WITHIN", timedelta(0))
    found = checked(empty_store)[what]
    assert found["result"] == "warn"
    assert advice in found["advice"]
    assert "gantline limit show mail." in found["advice"]
