"""gantline job prune: removes what is too old, counts first where asked, and asks before more."""

from pathlib import Path

import pytest

from tests.cli.conftest import Place, assert_bad_option, assert_refused
from tests.moving_stores import close

SHOP = """\
from datetime import timedelta
from gantline import Gantline, Retention, StorageSettings

keep = Retention(failed=timedelta(0))
jobs = Gantline("sqlite:///gantline.db", storage=StorageSettings(retention=keep))
"""


@pytest.fixture
def dead(place: Place) -> list[str]:
    """Two that failed, one of another tenant, and one that was cancelled."""
    cancelled = place.submit("index", "1")
    place.json("job", "cancel", cancelled)
    Path("kept_shop.py").write_text(SHOP)
    return [place.dead(), place.dead(), place.dead(tenant_id="other"), cancelled]


def left(place: Place) -> int:
    tenants = ("default", "other")
    return sum(len(place.json("--tenant", tenant, "job", "list")) for tenant in tenants)


def test_what_the_application_does_not_keep_any_longer_is_removed(
    place: Place, dead: list[str]
) -> None:
    waiting = place.submit("index", "2")
    words = ("--app", "kept_shop:jobs", "job", "prune")
    assert place.json(*words, "--dry-run") == {"matching": 3}
    assert left(place) == 5
    assert place.json(*words) == {"removed": 3}
    assert {place.status(dead[-1]), place.status(waiting)} == {"Cancelled", "Queued"}
    assert place.json(*words) == {"removed": 0}


def test_another_age_and_status_can_be_chosen(place: Place, dead: list[str]) -> None:
    words = ("job", "prune", "--older-than", "0s", "--yes")
    assert place.json("job", "prune", "--older-than", "1d", "--yes") == {"removed": 0}
    assert place.json(*words, "--status", "cancelled") == {"removed": 1}
    assert place.json(*words, "--status", "Completed", "--status", "Poisoned") == {"removed": 0}
    assert place.json(*words) == {"removed": 3}
    assert left(place) == 0


def test_who_asks_for_more_than_the_retention_is_asked(place: Place, dead: list[str]) -> None:
    words = ("job", "prune", "--older-than", "0s")
    assert_refused(place.run(*words), 2, "remove 4 jobs of every tenant", "since 0s", "--yes")
    assert left(place) == 4
    assert place.json(*words, "--dry-run") == {"matching": 4}


def test_one_tenant_alone_is_refused(place: Place, dead: list[str]) -> None:
    words = ("--tenant", "other", "job", "prune", "--older-than", "0s", "--yes")
    assert_refused(place.run(*words), 2, "every tenant", "Leave --tenant out")
    assert left(place) == 4


def test_how_long_jobs_are_kept_must_be_known(place: Place, dead: list[str]) -> None:
    assert_refused(place.run("job", "prune"), 2, "--app", "--older-than")
    assert left(place) == 4


@pytest.mark.parametrize("status", ["Queued", "Running", "Gone"])
def test_only_what_has_ended_is_removed(place: Place, dead: list[str], status: str) -> None:
    words = ("job", "prune", "--older-than", "0s", "--yes", "--status", status)
    assert_refused(place.run(*words), 2, "Completed")


@pytest.mark.parametrize("age", ["soon", "-1d", "1", "nan"])
def test_an_age_is_a_number_with_a_unit(place: Place, dead: list[str], age: str) -> None:
    assert_bad_option(place.run("job", "prune", f"--older-than={age}"), "--older-than")


def test_an_age_beyond_all_measure_is_refused(place: Place, dead: list[str]) -> None:
    words = ("job", "prune", "--older-than", "999999d", "--yes")
    assert_refused(place.run(*words), 2, "36500 days")


def test_who_has_pruned_what_is_in_the_audit_trail(place: Place, dead: list[str]) -> None:
    place.json("job", "prune", "--older-than", "0s", "--status", "Failed", "--yes")
    (event,) = place.json("audit", "list", "--action", "pruneJobs")
    assert event["payload"]["details"] == {"statuses": ["Failed"], "olderThanSeconds": 0}


def test_a_store_that_is_being_copied_is_left_alone(place: Place, dead: list[str]) -> None:
    place.stored(close)
    words = ("job", "prune", "--older-than", "0s", "--yes")
    assert place.run(*words).exit_code != 0
    assert place.json(*words, "--dry-run") == {"matching": 4}
