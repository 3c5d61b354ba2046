"""What reaches the terminal or the pipe: plain, whole, and one line per error."""

import os
import pty
import re
import subprocess
import sys
import termios

import pytest

from tests.cli.conftest import REPOSITORY, Place

ESCAPE = "\x1b"


def piped(place: Place, *words: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gantline.cli.main", *words],
        cwd=place.folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")} | variables,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout.decode()


def at_a_terminal(place: Place, *words: str, columns: int = 80, **variables: str) -> str:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    process = subprocess.Popen(
        [sys.executable, "-m", "gantline.cli.main", *words],
        cwd=place.folder,
        env=os.environ
        | {"PYTHONPATH": str(REPOSITORY / "src"), "TERM": "xterm-256color"}
        | variables,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    text = b""
    with process:
        try:
            while data := os.read(ours, 65536):
                text += data
        except OSError:  # how Linux says that the other end is closed
            pass
        assert process.wait(60) == 0
    os.close(ours)
    return text.decode()


def test_a_pipe_gets_plain_text(place: Place) -> None:
    place.dead()
    for words in (("job", "list"), ("dead", "list"), ("config", "show")):
        assert ESCAPE not in piped(place, *words, TERM="xterm-256color")


def test_a_terminal_gets_no_colour_with_no_color(place: Place) -> None:
    place.dead()
    text = at_a_terminal(place, "job", "list", NO_COLOR="1")
    assert "broken" in text
    assert ESCAPE not in text


def test_json_at_a_terminal_is_plain(place: Place) -> None:
    place.dead()
    assert ESCAPE not in at_a_terminal(place, "-o", "json", "job", "list")


def test_a_row_that_is_piped_is_one_whole_line(place: Place) -> None:
    message = "word " * 100 + "end"
    dead = place.dead(message=message, subject_id="s" * 150)
    lines = piped(place, "dead", "list").splitlines()
    assert len(lines) == 2, f"{len(lines)} lines"
    assert message in lines[1]
    lines = piped(place, "job", "list").splitlines()
    assert len(lines) == 2
    assert dead in lines[1]
    assert "s" * 150 in lines[1]


def test_a_long_table_that_is_piped_is_not_cut(place: Place) -> None:
    ids = {place.submit("index", "1") for _ in range(60)}
    text = piped(place, "job", "list", "--limit", "60")
    assert all(job_id in text for job_id in ids)
    assert len(text.splitlines()) == 61


def test_a_job_cannot_write_escape_codes_to_a_terminal(place: Place) -> None:
    """Messages come from strangers; a terminal obeys what it is sent."""
    dead = place.dead(message=f"{ESCAPE}]0;owned\x07{ESCAPE}[2J")
    for words in (("job", "list"), ("dead", "list"), ("job", "get", dead)):
        for text in (at_a_terminal(place, *words), piped(place, *words)):
            assert f"{ESCAPE}]" not in text, words
            assert f"{ESCAPE}[2J" not in text, words


def test_a_line_break_in_a_message_does_not_break_its_row(place: Place) -> None:
    place.dead(message="first\nsecond\r\nthird")
    assert len(piped(place, "dead", "list").splitlines()) == 2


def test_brackets_in_a_message_are_not_markup(place: Place) -> None:
    place.dead(message="[bold]x[/bold] [link]")
    assert "[bold]x[/bold] [link]" in piped(place, "dead", "list")


def test_a_line_of_a_table_has_no_spaces_at_its_end(place: Place) -> None:
    place.submit("index", "1")
    for line in piped(place, "job", "list").splitlines():
        assert line == line.rstrip()


def test_the_output_is_utf_8_whatever_the_locale_says(place: Place) -> None:
    place.dead(message="größer ✓")
    assert "größer ✓" in piped(place, "dead", "list", LC_ALL="C", PYTHONUTF8="1")


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("--version",), ("job", "--help")])
def test_help_and_version_are_data(place: Place, words: tuple[str, ...]) -> None:
    result = place.run(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.parametrize("words", [("nope",), ("job", "nope"), ("job", "get"), ("--nope",)])
def test_what_is_no_command_is_refused_as_usage(place: Place, words: tuple[str, ...]) -> None:
    result = place.run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage:" in result.stderr


def test_a_reader_that_leaves_early_is_no_traceback(place: Place) -> None:
    place.dead(message="x" * 4000)
    reading, writing = os.pipe()
    os.close(reading)
    for form in ("table", "json"):
        done = subprocess.run(
            [sys.executable, "-m", "gantline.cli.main", "-o", form, "dead", "list"],
            cwd=place.folder,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr
    os.close(writing)


def shown(place: Place, *words: str, columns: int = 80) -> list[str]:
    text = at_a_terminal(place, *words, columns=columns, NO_COLOR="1")
    lines = text.replace("\r\n", "\n").splitlines()
    assert all(len(line) <= columns for line in lines), text
    assert "…" not in text
    return lines


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", ["job list", "dead list"])
def test_at_any_width_a_list_shows_id_type_status_and_why(
    place: Place, words: str, columns: int
) -> None:
    message = "There is no such document, and there never was one in any archive of ours."
    dead = place.dead("document-indexing", message=message, subject_id="d1")
    lines = shown(place, *words.split(), columns=columns)
    assert lines[1].startswith(dead)
    assert "Failed" in lines[1]
    assert "document-indexing" in lines[1]
    text = " ".join(" ".join(lines).split())
    assert f"BROKEN: {message}" in text
    note = re.search("too narrow for the columns? (.*); -o json shows everything.", text)
    left_out = note[1].split(", ") if note else []
    assert {*lines[0].split(), *left_out} >= {"jobId", "age", "jobType"}
    assert ("subjectId" if words == "job list" else "reason") in text
    # At 120 it depends on the width of the age whether there is room for all.
    assert left_out if columns == 80 else len(left_out) <= 1


@pytest.mark.parametrize("columns", [80, 120])
def test_at_any_width_every_setting_and_its_value_are_whole(place: Place, columns: int) -> None:
    rows = place.json("config", "show")
    text = "\n".join(shown(place, "config", "show", columns=columns))
    for row in rows:
        assert row["setting"] in text
        assert row["value"] in text
        assert row["source"] in text


def test_at_80_columns_a_queue_shows_whether_it_is_paused(place: Place) -> None:
    place.submit("index", "1", "--queue", "documents")
    place.run("queue", "pause", "documents")
    header, row, note = shown(place, "queue", "list")
    assert note == "The terminal is too narrow for the column cancelled; -o json shows everything."
    assert header.split()[-1] == "paused"
    assert row.split()[-1] == "yes"


@pytest.mark.parametrize("words", ["job list", "dead list"])
def test_an_exception_has_a_name_in_lists_but_no_words(place: Place, words: str) -> None:
    """What it says may be anybody's data; the trace of one job shows it to whoever asks."""
    trace = 'Traceback (most recent call last):\n  File "x"\nZeroDivisionError: hush\n'
    place.dead(message="The job failed unexpectedly.", detail=trace)
    text = piped(place, *words.split())
    assert "BROKEN (ZeroDivisionError): The job failed unexpectedly." in text
    assert "hush" not in text
    (row,) = place.json(*words.split())
    assert (row["errorCode"], row["errorType"]) == ("BROKEN", "ZeroDivisionError")
    assert "hush" not in str(row)


def test_an_empty_table_is_a_sentence_for_people_and_nothing_for_a_pipe(empty_store: Place) -> None:
    for words in ("job list", "dead list", "queue list", "type list", "stats", "sessions"):
        result = empty_store.run(*words.split())
        assert (result.exit_code, result.stdout) == (0, ""), words
        assert len(result.stderr.splitlines()) == 1, words


def test_a_pipe_that_wants_one_line_gets_it_and_nobody_complains(place: Place) -> None:
    place.submit("index", "1")
    done = subprocess.run(
        ["bash", "-c", '"$0" -m gantline.cli.main job list | head -1', sys.executable],
        cwd=place.folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(b"jobId")
    assert done.stderr == b""
