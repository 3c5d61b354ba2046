"""What people type on their first day, and what they are told."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Place, assert_refused

SHOP = """
import msgspec
from gantline import Gantline

jobs = Gantline()

class Document(msgspec.Struct, rename="camel"):
    document_id: str
    row_version: int = 1

@jobs.job("index")
async def index(document: Document) -> None: ...

@jobs.job("count")
async def count(number: int) -> None: ...
"""


@pytest.fixture
def first_day(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.delitem(sys.modules, "first_day", raising=False)
    Path("first_day.py").write_text(SHOP)
    monkeypatch.setenv("GANTLINE_APP", "first_day:jobs")
    return place


@pytest.mark.parametrize("payload", ["{}", '{"document_id": "d1"}', "{document_id: d1}"])
def test_a_payload_that_does_not_fit_is_refused_with_the_fields_that_it_has(
    first_day: Place, payload: str
) -> None:
    result = first_day.run("job", "submit", "index", payload)
    assert_refused(result, 2, "The payload is not valid", "fields documentId, rowVersion")


@pytest.mark.parametrize("words", [(), ("null",)])
def test_a_payload_that_is_missing_is_asked_for(first_day: Place, words: tuple[str, ...]) -> None:
    result = first_day.run("job", "submit", "index", *words)
    assert_refused(result, 2, "No payload was given. It has the fields documentId, rowVersion.")


def test_a_text_without_quotes_is_shown_with_them(first_day: Place) -> None:
    result = first_day.run("job", "submit", "index", "cat.jpg")
    assert_refused(result, 2, "is not valid", """A text is written as '"cat.jpg"'.""")


def test_a_delay_that_is_none_is_refused_with_what_to_write(first_day: Place) -> None:
    result = first_day.run("job", "submit", "count", "1", "--delay", "tomorrow")
    assert result.exit_code == 2
    assert "'tomorrow' is not a span of time; write 90d, 12h, 30m, 45s or seconds." in result.stderr


def test_a_file_instead_of_a_url_is_refused_with_its_url(first_day: Place) -> None:
    result = first_day.run("--store", "foo.db", "job", "list")
    assert_refused(result, 5, "'foo.db' is not a URL. Write sqlite:///foo.db.")


def test_a_point_for_a_colon_is_named(first_day: Place) -> None:
    result = first_day.run("worker", "first_day.jobs")
    assert_refused(result, 2, "Did you mean first_day:jobs?")


def test_who_names_nothing_is_told_to_name_the_application_and_not_to_make_a_store(
    place: Place,
) -> None:
    refused = place.run("job", "list")
    assert_refused(refused, 5, "There is no store file", "Name your application")
    assert "migrate" not in refused.stderr
    assert_refused(place.run("worker"), 2, "`gantline worker module:name`")


def test_a_schedule_that_is_not_there_is_named(first_day: Place) -> None:
    first_day.make_store()
    result = first_day.run("schedule", "show", "nightly")
    assert_refused(result, 3, "There is no schedule 'nightly'.", "gantline schedule list")


def test_a_payload_without_fields_is_refused_without_them(first_day: Place) -> None:
    result = first_day.run("job", "submit", "count", '"x"')
    assert_refused(result, 2, "Expected `int`, got `str`")
    assert "fields" not in result.stderr


def test_a_job_that_is_not_declared_is_refused_with_those_that_are(first_day: Place) -> None:
    assert_refused(first_day.run("job", "submit", "indx", "{}"), 2, "It declares count, index.")


@pytest.mark.parametrize("words", ["sessions", "doctor"])
def test_who_has_no_worker_is_told_how_to_start_one_here(first_day: Place, words: str) -> None:
    first_day.make_store()
    assert "Start one: gantline worker first_day:jobs" in first_day.run(words).output


def test_a_module_that_is_not_found_is_told_with_the_command_that_would_find_it(
    place: Place,
) -> None:
    result = place.run("--app", "nosuch:jobs", "worker")
    assert_refused(result, 2, "`python -c 'import nosuch'`")


WITHOUT_DRIVER = """
import sys
sys.modules["psycopg"] = None
from gantline.cli.main import main
main()
"""


@pytest.mark.parametrize("words", ["job list", "worker first_day:jobs"])
def test_a_driver_that_is_not_installed_is_told_with_the_extra_that_has_it(
    first_day: Place, words: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER, *words.split()],
        env={"GANTLINE_STORE": "postgresql://u@h/d", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == (
        "Error: A postgresql store needs the module psycopg, which is not installed. "
        "Run `pip install 'gantline[postgres]'`.\n"
    )


def test_a_file_in_place_of_a_module_is_told_how_to_be_written(first_day: Place) -> None:
    assert_refused(first_day.run("worker", "first_day.py"), 2, "Write first_day:jobs.")
    assert_refused(first_day.run("worker", "first_day.py:mine"), 2, "Write first_day:mine.")
