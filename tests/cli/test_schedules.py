"""gantline schedule: the same verbs against a store and against a server."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.cli.conftest import Place
from tests.servers.http_api import ApiProcess

NIGHTLY = ("document-indexing", '{"documentId": "d1"}', "--cron", "30 2 * * *")
BERLIN = ("--timezone", "Europe/Berlin")


class Chosen:
    """Commands on a store or on a server, as the test is told."""

    def __init__(self, place: Place, *where: str) -> None:
        self._place = place
        self._where = where

    def run(self, *words: str) -> Any:
        return self._place.run(*self._where, "schedule", *words)

    def json(self, *words: str) -> Any:
        result = self.run("-o", "json", *words)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("served")
    served = ApiProcess("tests.client.served:app", store=f"sqlite:///{folder}/gantline.db")
    yield served
    served.stop()


@pytest.fixture(params=["store", "server"])
def schedule(
    request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch
) -> Chosen:
    if request.param == "store":
        place.make_store()
        return Chosen(place, "--app", "tests.cli.served_app:jobs", "--store", _url(place.folder))
    monkeypatch.setenv("GANTLINE_API_KEY", "system")
    api: ApiProcess = request.getfixturevalue("server")
    chosen = Chosen(place, "--url", api.url)
    for one in chosen.json("list"):
        chosen.json("delete", one["name"], "--yes")
    return chosen


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/gantline.db"


def test_a_schedule_is_made_shown_and_listed(schedule: Chosen) -> None:
    made = schedule.json(
        "add", "nightly", *NIGHTLY, *BERLIN, "--jitter", "10m", "--overlap", "skip"
    )
    assert made["explanation"] == "At 02:30 every day (Europe/Berlin)"
    assert (made["jitterSeconds"], made["overlap"]) == (600, "skip")
    assert made["payload"] == {"documentId": "d1", "rowVersion": 1, "flags": []}
    assert schedule.json("show", "nightly") == made
    (listed,) = schedule.json("list")
    assert listed["name"] == "nightly"
    table = schedule.run("list").stdout
    assert "At 02:30 every day" in table


def test_the_next_five_runs_are_told_in_utc_and_local_time(schedule: Chosen) -> None:
    schedule.json("add", "nightly", *NIGHTLY, *BERLIN)
    told = schedule.json("next", "nightly")
    assert told["timezone"] == "Europe/Berlin"
    assert len(told["runs"]) == 5
    for one in told["runs"]:
        local = datetime.fromisoformat(one["local"])
        assert local == datetime.fromisoformat(one["at"])
        assert local.utcoffset() == local.astimezone(ZoneInfo("Europe/Berlin")).utcoffset()
        assert (local.hour, local.minute) in ((2, 30), (3, 0))
    table = schedule.run("next", "nightly", "--count", "2").stdout
    assert "At 02:30 every day (Europe/Berlin)" in table
    assert table.count("T02:30:00+") == 2


def test_an_interval_is_written_with_its_unit(schedule: Chosen) -> None:
    made = schedule.json("add", "often", "sweep", "--every", "5m", "--misfire", "skip")
    assert (made["everySeconds"], made["cron"]) == (300, None)
    assert made["explanation"] == "Every 5 minutes"


def test_a_schedule_is_paused_resumed_run_and_deleted(schedule: Chosen) -> None:
    schedule.json("add", "often", "sweep", "--every", "1h")
    assert schedule.json("pause", "often")["paused"] is True
    resumed = schedule.json("resume", "often")
    assert (resumed["paused"], len(resumed["nextRuns"])) == (False, 5)
    job_id = schedule.json("run", "often")["jobId"]
    (fire,) = schedule.json("show", "often")["fires"]
    assert fire["jobId"] == job_id
    assert fire["by"]
    refused = schedule.run("delete", "often")
    assert refused.exit_code == 2
    assert (
        "This would delete the schedule often (Every hour). Confirm with --yes." in refused.stderr
    )
    assert schedule.json("delete", "often", "--yes") == {"name": "often", "deleted": True}
    for verb in ("show", "pause", "resume", "run", "next"):
        assert schedule.run(verb, "often").exit_code == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sweep", "--cron", "0 0 30 2 *"), "cannot be read: Bad day-of-month"),
        (("sweep", "--cron", "* * * * *", "--timezone", "Mars/Olympus"), "There is no time zone"),
        (("sweep",), "Give one of --cron and --every"),
        (("sweep", "--cron", "* * * * *", "--every", "5m"), "Give one of --cron and --every"),
        (("document-indexing", "[]", "--every", "5m"), "Expected `object`"),
        (("document-indexing", "{", "--every", "5m"), "not valid JSON"),
        (("document-indexing", "text", "--every", "5m"), """A text has quotes: '"daily"'."""),
        (("unknown", "--every", "5m"), "unknown"),
        (("sweep", "--every", "5 minutes"), "is not a span of time"),
        (("sweep", "--every", "5m", "--start", "2026-01-01"), "has no time zone"),
        (("sweep", "--every", "5m", "--end", "soon"), "is not an instant"),
        (("sweep", "--every", "5m", "--end", "2020-01-01T00:00Z"), "has no run any more"),
    ],
)
def test_what_is_wrong_is_refused_when_it_is_added(
    schedule: Chosen, words: tuple[str, ...], why: str
) -> None:
    result = schedule.run("add", "wrong", *words)
    assert result.exit_code == 2, result.stderr
    assert why in result.stderr
    assert schedule.json("list") == []


def test_a_name_is_taken_once_and_must_be_one(schedule: Chosen) -> None:
    schedule.json("add", "often", "sweep", "--every", "1h")
    again = schedule.run("add", "often", "sweep", "--every", "1h")
    assert again.exit_code == 1
    assert "already" in again.stderr
    assert schedule.run("add", "a/b", "sweep", "--every", "1h").exit_code == 2


@pytest.mark.parametrize(
    ("most", "why"),
    [("1", "has 1 schedules, and may have 1"), ("none", "must be a number")],
)
def test_how_many_there_may_be_is_a_setting(
    place: Place, monkeypatch: pytest.MonkeyPatch, most: str, why: str
) -> None:
    place.make_store()
    schedule = Chosen(place, "--store", _url(place.folder))
    schedule.json("add", "first", *NIGHTLY)
    monkeypatch.setenv("GANTLINE_SCHEDULES_PER_TENANT", most)
    refused = schedule.run("add", "second", *NIGHTLY)
    assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr


def test_an_empty_list_says_so(schedule: Chosen) -> None:
    assert "There are no schedules" in schedule.run("list").stderr


def test_without_an_application_the_payload_is_not_checked(place: Place) -> None:
    store = ("--store", _url(place.folder))
    result = place.run(*store, "schedule", "add", "s", "anything", "[1]", "--every", "1h")
    assert result.exit_code == 0
    assert "the payload is not checked" in result.stderr
