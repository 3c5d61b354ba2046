"""gantline limit: which limits hold, setting and clearing them, groups and gates."""

from typing import Any

import pytest

from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.store import JobStore
from gantline.flow.limits import Limits
from tests.cli.conftest import Place, assert_bad_option, assert_refused

GATED = TypeFlow(job_type="mail", running_in_all=9, gate=Gate("api", 100, 20))


@pytest.fixture
def declared(place: Place) -> Place:
    """A store in which a worker has declared limits of mail, and a job of it waits."""

    async def declare(store: JobStore) -> None:
        await Limits(store).declare([GATED])

    place.submit("mail", "1", "--group", "ann")
    place.stored(declare)
    return place


def kinds(shown: dict[str, Any]) -> dict[str, Any]:
    names = ("running", "runningInAll", "rate", "burst", "gate")
    return {name: shown[name] for name in names if shown[name] is not None}


DECLARED = {"runningInAll": 9, "rate": "100/s", "burst": 20, "gate": "api"}


def test_the_limits_that_hold_are_listed_and_shown(declared: Place) -> None:
    (row,) = declared.json("limit", "list")
    assert (row["jobType"], kinds(row), row["set"]) == ("mail", DECLARED, None)
    shown = declared.json("limit", "show", "mail")
    assert (kinds(shown), shown["setAt"]) == (DECLARED, None)
    assert [kinds(one) for one in shown["declared"]] == [DECLARED]


def test_what_is_set_holds_until_it_is_cleared(declared: Place) -> None:
    words = ("--running", "3", "--running-in-all", "none", "--rate", "10/m")
    shown = declared.json("limit", "set", "mail", *words)
    assert kinds(shown) == {"running": 3, "rate": "10/m", "burst": 1, "gate": "api"}
    assert shown["set"].startswith("running, runningInAll, rate by cli:")
    shown = declared.json("limit", "set", "mail", "--burst", "7", "--gate", "other")
    assert kinds(shown) == {"running": 3, "rate": "10/m", "burst": 7, "gate": "other"}
    shown = declared.json("limit", "set", "mail", "--rate", "none")
    assert kinds(shown) == {"running": 3}
    shown = declared.json("limit", "clear", "mail")
    assert (kinds(shown), shown["set"]) == (DECLARED, None)
    shown = declared.json("limit", "clear", "mail", "--declared")
    assert (kinds(shown), shown["declared"]) == ({}, [])


def test_what_is_set_and_cleared_is_in_the_audit_trail(declared: Place) -> None:
    declared.json("limit", "set", "mail", "--running", "3")
    declared.json("limit", "clear", "mail")
    events = declared.json("audit", "list")
    found = [(one["type"], one["aggregate"]) for one in reversed(events)]
    assert found == [("setLimits", "type:mail"), ("clearLimits", "type:mail")]


def test_a_type_that_no_job_has_is_told(declared: Place) -> None:
    result = declared.run("limit", "set", "male", "--running", "3")
    assert (result.exit_code, "Is 'mail' meant?" in result.stderr) == (0, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--running", "0"),
        ("--running", "-1"),
        ("--running", "1.5"),
        ("--running", "nan"),
        ("--running", "9" * 30),
        ("--running-in-all", "\u0663"),
        ("--rate", "0/s"),
        ("--rate", "inf/s"),
        ("--rate", "100"),
        ("--burst", "0"),
    ],
)
def test_what_is_no_limit_is_refused(declared: Place, words: tuple[str, str]) -> None:
    assert_bad_option(declared.run("limit", "set", "mail", *words), words[0])


def test_a_set_without_a_limit_is_refused(declared: Place) -> None:
    assert_refused(declared.run("limit", "set", "mail"), 2, "Name running")
    assert_refused(declared.run("limit", "set", "other", "--burst", "3"), 2, "Give it a rate too")


def test_groups_show_what_waits(declared: Place) -> None:
    declared.submit("mail", "2", "--group", "ann", "--queue", "slow")
    declared.submit("mail", "3")
    rows = declared.json("limit", "groups", "mail")
    found = {(row["queue"], row["group"]): (row["waiting"], row["running"]) for row in rows}
    assert found == {("default", "ann"): (1, 0), ("slow", "ann"): (1, 0), ("default", ""): (1, 0)}
    assert [
        row["queue"] for row in declared.json("limit", "groups", "mail", "--queue", "slow")
    ] == ["slow"]
    assert len(declared.json("limit", "groups", "mail", "--limit", "2")) == 2
    assert declared.json("limit", "groups", "other") == []


def test_gates_show_whether_they_are_closed(declared: Place) -> None:
    (row,) = declared.json("limit", "gates")
    assert row == {
        "gate": "api",
        "rate": "100/s",
        "burst": 20,
        "jobTypes": ["mail"],
        "closed": False,
        "opensAt": None,
        "throttled": False,
    }


def test_where_nothing_is_limited_that_is_said(empty_store: Place) -> None:
    assert empty_store.run("limit", "list").stderr == "No type has limits.\n"
    assert empty_store.run("limit", "gates").stderr == "No type has a rate.\n"


def test_a_job_shows_its_group(declared: Place) -> None:
    job_id = declared.submit("mail", "2", "--group", "bob")
    assert declared.json("job", "get", job_id)["group"] == "bob"
