"""gantline dead: counts first, asks first, and touches only what was chosen."""

import json
import os
import pty
import signal
from collections.abc import Iterator

import pytest

from tests.cli.conftest import NOBODY, Place, assert_refused

VERBS = {"redrive": "redriven", "discard": "discarded"}
both_verbs = pytest.mark.parametrize("verb", VERBS)


def test_only_dead_letters_are_listed(place: Place) -> None:
    place.submit("index", "1")
    dead = place.dead()
    (row,) = place.json("dead", "list")
    assert (row["jobId"], row["reason"], row["errorCode"]) == (dead, "PermanentError", "BROKEN")


def test_dead_letters_are_filtered_by_type_and_reason(place: Place) -> None:
    dead = place.dead("broken")
    place.dead("other")
    rows = place.json("dead", "list", "--type", "broken", "--reason", "PermanentError")
    assert [row["jobId"] for row in rows] == [dead]
    assert place.json("dead", "list", "--reason", "AttemptsExhausted") == []


def test_a_dead_letter_is_shown_with_its_history(place: Place) -> None:
    dead = place.dead()
    assert place.json("dead", "show", dead) == place.json("job", "get", dead)


@both_verbs
def test_without_a_terminal_nothing_happens_without_yes(place: Place, verb: str) -> None:
    dead = place.dead()
    # What is named and can be undone needs no question.
    for chosen in ("--all",) if verb == "redrive" else ("--all", dead):
        assert_refused(place.run("dead", verb, chosen), 2, "1 dead letter", "--yes")
    assert place.status(dead) == "Failed"


@both_verbs
def test_who_names_a_cancelled_job_is_told_which_command_is_for_it(place: Place, verb: str) -> None:
    job_id = place.submit("index", "1")
    place.json("job", "cancel", job_id)
    result = place.run("dead", verb, job_id, "--yes")
    assert_refused(result, 1, "not a dead letter", "gantline job redrive")
    assert place.json("job", "redrive", job_id)[0]["status"] == "Queued"


@both_verbs
def test_one_dead_letter_is_not_spoken_of_as_many(place: Place, verb: str) -> None:
    place.dead()
    assert "1 dead letters" not in place.run("dead", verb, "--all").stderr


@both_verbs
def test_a_dry_run_counts_and_changes_nothing(place: Place, verb: str) -> None:
    ids = [place.dead(), place.dead()]
    result = place.run("dead", verb, "--all", "--dry-run", "--yes")
    assert (result.exit_code, "2" in result.output) == (0, True)
    assert [place.status(one) for one in ids] == ["Failed", "Failed"]


@both_verbs
@pytest.mark.parametrize("options", [("--dry-run",), ("--yes", "--type", "none")], ids=" ".join)
def test_every_success_prints_json_when_json_is_asked_for(
    place: Place, verb: str, options: tuple[str, ...]
) -> None:
    """A script must be able to read the count, also where it is nought."""
    place.dead()
    result = place.run("-o", "json", "dead", verb, "--all", *options)
    assert result.exit_code == 0
    assert isinstance(json.loads(result.stdout), dict)


@both_verbs
def test_all_are_taken_with_yes(place: Place, verb: str) -> None:
    ids = [place.dead(), place.dead()]
    queued = place.submit("index", "1")
    assert place.json("dead", verb, "--all", "--yes") == {VERBS[verb]: 2, "failed": 0}
    assert place.json("dead", "list") == []
    found = [place.run("job", "get", one).exit_code for one in ids]
    assert found == ([0, 0] if verb == "redrive" else [3, 3])
    assert place.status(queued) == "Queued"


@both_verbs
def test_only_the_chosen_are_taken(place: Place, verb: str) -> None:
    chosen, left = place.dead("chosen"), place.dead("left")
    assert place.json("dead", verb, "--type", "chosen", "--yes")[VERBS[verb]] == 1
    assert [row["jobId"] for row in place.json("dead", "list")] == [left]
    assert place.json("dead", verb, left, "--yes")[VERBS[verb]] == 1
    assert chosen != left


@both_verbs
def test_no_more_than_the_limit_are_taken(place: Place, verb: str) -> None:
    for _ in range(3):
        place.dead()
    assert place.json("dead", verb, "--all", "--yes", "--limit", "2")[VERBS[verb]] == 2
    assert len(place.json("dead", "list")) == 1


@both_verbs
def test_a_letter_named_twice_is_counted_once(place: Place, verb: str) -> None:
    dead = place.dead()
    assert place.json("dead", verb, dead, dead, "--yes") == {VERBS[verb]: 1, "failed": 0}


@both_verbs
def test_choosing_nothing_is_refused_as_usage(place: Place, verb: str) -> None:
    place.dead()
    assert_refused(place.run("dead", verb, "--yes"), 2, "--all")


@both_verbs
def test_ids_together_with_a_filter_are_refused_or_both_obeyed(place: Place, verb: str) -> None:
    """An id that the filter excludes must not be taken."""
    dead = place.dead("broken")
    place.run("dead", verb, dead, "--type", "other", "--yes")
    assert place.run("job", "get", dead).exit_code == 0
    assert place.status(dead) == "Failed"


@both_verbs
def test_a_named_letter_that_is_not_there_is_3(empty_store: Place, verb: str) -> None:
    assert_refused(empty_store.run("dead", verb, NOBODY, "--yes"), 3, NOBODY)


@both_verbs
def test_a_named_job_that_is_not_dead_is_refused(place: Place, verb: str) -> None:
    queued = place.submit("index", "1")
    result = place.run("dead", verb, queued, "--yes")
    assert result.exit_code == 1, result.output
    assert queued in result.stderr


class Terminal:
    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()

    def types(self, text: str) -> None:
        os.write(self.ours, text.encode())


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    os.close(terminal.ours)
    os.close(terminal.theirs)


@both_verbs
@pytest.mark.parametrize("answer", ["y", "n"])
def test_at_a_terminal_a_person_is_asked_on_stderr(
    place: Place, terminal: Terminal, verb: str, answer: str
) -> None:
    place.dead()
    with place.process("-o", "json", "dead", verb, "--all", stdin=terminal.theirs) as program:
        program.wait_for(f"{verb} 1 dead letter")
        terminal.types(f"{answer}\n")
        assert program.exit_code() == (0 if answer == "y" else 1)
        if answer == "y":
            assert program.stdout.startswith("{"), repr(program.stdout)
            assert json.loads(program.stdout)[VERBS[verb]] == 1
        else:
            assert program.stdout == ""
    assert len(place.json("dead", "list")) == (0 if answer == "y" else 1)


@both_verbs
def test_ctrl_c_at_the_question_is_130_and_does_nothing(
    place: Place, terminal: Terminal, verb: str
) -> None:
    place.dead()
    with place.process("dead", verb, "--all", stdin=terminal.theirs) as program:
        program.wait_for("[y/N]:")
        program.process.send_signal(signal.SIGINT)
        assert program.exit_code() == 130
        assert "Traceback" not in program.stderr
    assert len(place.json("dead", "list")) == 1
