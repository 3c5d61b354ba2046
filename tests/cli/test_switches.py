"""gantline queue and type: switches that hold, and names that nobody knows."""

import json
import os
import pty
import signal

import pytest

from tests.cli.conftest import Place, assert_refused

SWITCHES = [
    "queue pause {}",
    "queue resume {}",
    "type pause {}",
    "type resume {}",
    "type disable {} --yes",
    "type enable {}",
]


@pytest.mark.parametrize("words", SWITCHES)
def test_a_name_that_no_job_has_is_told_with_those_that_are_known(place: Place, words: str) -> None:
    place.submit("index", "1", "--queue", "docs")
    result = place.run("-o", "json", *words.format("nosuch").split())
    assert result.exit_code == 0
    assert json.loads(result.stdout)["seen"] is False
    kind, known = ("queue", "docs") if words.startswith("queue") else ("type", "index")
    assert result.stderr == (
        f"There is no job of the {kind} 'nosuch' in the store, and no worker serves it. "
        f"Known are {known}.\n"
    )


@pytest.mark.parametrize("words", SWITCHES)
def test_a_name_that_a_job_has_is_not_talked_about(place: Place, words: str) -> None:
    place.submit("index", "1", "--queue", "index")
    result = place.run("-o", "json", *words.format("index").split())
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["seen"] is True


@pytest.mark.parametrize("words", SWITCHES)
def test_where_nothing_is_known_that_is_said(empty_store: Place, words: str) -> None:
    result = empty_store.run(*words.format("nosuch").split())
    assert (result.exit_code, "is known yet" in result.stderr) == (0, True)


@pytest.mark.parametrize("words", SWITCHES)
@pytest.mark.parametrize("name", ["", "q" * 129, "a\nb"], ids=repr)
def test_what_can_be_no_name_is_refused_before_the_store_is_looked_for(
    place: Place, words: str, name: str
) -> None:
    assert_refused(place.run(*(word.format(name) for word in words.split())), 2)


def test_many_names_are_not_all_told(place: Place) -> None:
    for number in range(12):
        place.submit("index", "1", "--queue", f"queue-{number:02}")
    said = place.run("queue", "pause", "nosuch").stderr
    assert "queue-09 and 2 more." in said


def switches_of(place: Place, name: str) -> tuple[bool, bool]:
    (row,) = [row for row in place.json("type", "list") if row["jobType"] == name]
    return row["paused"], row["disabled"]


def test_a_type_stays_switched_until_it_is_switched_back(place: Place) -> None:
    place.submit("index", "1")
    assert switches_of(place, "index") == (False, False)
    place.json("type", "pause", "index")
    assert switches_of(place, "index") == (True, False)
    place.json("type", "disable", "index", "--yes")
    assert switches_of(place, "index") == (True, True)
    place.json("type", "resume", "index")
    place.json("type", "enable", "index")
    assert switches_of(place, "index") == (False, False)


def test_a_type_that_is_only_switched_is_listed_too(empty_store: Place) -> None:
    empty_store.run("type", "pause", "index")
    (row,) = empty_store.json("type", "list")
    assert row == {
        "jobType": "index",
        "queued": 0,
        "running": 0,
        "workers": 0,
        "paused": True,
        "disabled": False,
    }


def test_types_are_counted_for_one_tenant_over_all_its_queues(place: Place) -> None:
    place.submit("index", "1", "--queue", "a")
    place.submit("index", "1", "--queue", "b")
    place.json("--tenant", "other", "job", "submit", "index", "1")
    (row,) = place.json("type", "list")
    assert row["queued"] == 2


def test_disabling_a_type_lets_jobs_fail_so_it_asks_first(place: Place) -> None:
    place.submit("index", "1")
    refused = place.run("type", "disable", "index")
    assert_refused(refused, 2, "disable the type index and let 1 waiting job of it fail", "--yes")
    assert switches_of(place, "index") == (False, False)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\x03", 130)])
def test_a_person_is_asked_before_a_type_is_disabled(place: Place, answer: str, code: int) -> None:
    place.submit("index", "1")
    ours, theirs = pty.openpty()
    with place.process("type", "disable", "index", stdin=theirs) as program:
        program.wait_for("[y/N]:")
        if answer == "\x03":
            program.process.send_signal(signal.SIGINT)
        else:
            os.write(ours, answer.encode())
        assert program.exit_code() == code
    os.close(ours)
    os.close(theirs)
    assert switches_of(place, "index") == (False, code == 0)
