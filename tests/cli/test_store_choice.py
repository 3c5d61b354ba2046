"""One rule for the store: a flag, else what the code names, else the settings, else the default."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gantline import Gantline
from tests.cli.conftest import Place, Program, assert_refused

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(60)]

STALL = """
from gantline import Gantline

jobs = Gantline({store})

@jobs.job("add")
async def add(number: int) -> int:
    return number + 1
"""
SUBMIT = "import stall; stall.add.submit_sync(1)"
IN_CODE = "'sqlite:///code.db'"
# What names a store, from the strongest to the weakest.
ORDER = ["flag", "code", "variable", "gantline.toml", "pyproject.toml", "default"]
WHY = {
    "flag": "named by --store",
    "code": "named in the code",
    "variable": "named by GANTLINE_STORE",
    "gantline.toml": "named in gantline.toml",
    "pyproject.toml": "named in pyproject.toml",
    "default": "the default",
}
FILES = {name: f"{name.partition('.')[0]}.db" for name in ORDER} | {"default": "gantline.db"}


@pytest.fixture(autouse=True)
def every_test_has_a_stall_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stall", raising=False)


def written(place: Place, store: str = "") -> Place:
    (place.folder / "stall.py").write_text(STALL.format(store=store))
    return place


def name_stores(place: Place, monkeypatch: pytest.MonkeyPatch, strongest: str) -> tuple[str, ...]:
    """Name a store of its own at `strongest` and at every weaker place; give the flags."""
    named = ORDER[ORDER.index(strongest) :]
    written(place, IN_CODE if "code" in named else "")
    if "variable" in named:
        monkeypatch.setenv("GANTLINE_STORE", "sqlite:///variable.db")
    if "gantline.toml" in named:
        Path("gantline.toml").write_text('store = "sqlite:///gantline.db"\n')
    if "pyproject.toml" in named:
        Path("pyproject.toml").write_text('[tool.gantline]\nstore = "sqlite:///pyproject.db"\n')
    return ("--store", "sqlite:///flag.db") if "flag" in named else ()


def started(program: Program) -> str:
    """Where the worker says that it looks."""
    program.wait_for("Working on")
    (line,) = [line for line in program.stderr.splitlines() if line.startswith("Jobs are kept")]
    return line


@pytest.mark.parametrize("strongest", ORDER)
@pytest.mark.parametrize("command", ["worker", "dev --no-reload"])
def test_a_worker_says_where_the_jobs_are_and_who_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, strongest: str, command: str
) -> None:
    flags = name_stores(place, monkeypatch, strongest)
    with place.process(*flags, *command.split(), "stall:jobs") as program:
        file = place.folder / FILES[strongest]
        assert started(program) == f"Jobs are kept in {file} ({WHY[strongest]})."
    assert file.exists()


@pytest.mark.parametrize("strongest", ORDER[1:])
def test_the_application_itself_the_worker_and_every_command_use_one_store(
    place: Place, monkeypatch: pytest.MonkeyPatch, strongest: str
) -> None:
    name_stores(place, monkeypatch, strongest)
    done = subprocess.run([sys.executable, "-c", SUBMIT], cwd=place.folder, check=False)
    assert done.returncode == 0
    databases = [path.name for path in place.folder.glob("*.db")]
    assert databases == [FILES[strongest]]
    result = place.run("-o", "json", "--app", "stall:jobs", "job", "list")
    (row,) = json.loads(result.stdout)
    with place.process("worker", "stall:jobs"):
        place.eventually(
            lambda: (
                place.json("--app", "stall:jobs", "job", "get", row["jobId"])["status"]
                == "Completed"
            ),
            "the worker has found it",
        )
    assert [path.name for path in place.folder.glob("*.db")] == databases


def test_a_setting_that_the_code_passes_over_is_warned_of(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(place, IN_CODE)
    monkeypatch.setenv("GANTLINE_APP", "stall:jobs")
    monkeypatch.setenv("GANTLINE_STORE", "postgresql://me:hush@host/shop")
    warning = (
        "GANTLINE_STORE names postgresql://…@host/shop, which is not used, "
        "because the code names a store."
    )
    submitted = place.run("job", "submit", "add", "1")
    assert (submitted.exit_code, warning in submitted.stderr) == (0, True)
    with place.process("worker") as program:
        started(program)
        assert warning in program.stderr
        assert program.stderr.count("Warning") == 1
    advice = [row["advice"] for row in doctor(place) if row["result"] == "warn"]
    assert len(advice) == 1
    assert advice[0].startswith(warning)
    assert "hush" not in program.stderr + submitted.output + advice[0]


def doctor(place: Place) -> list[dict[str, str]]:
    result = place.run("-o", "json", "doctor")
    assert "Warning" not in result.stderr, "it is told as a check"
    rows: list[dict[str, str]] = json.loads(result.stdout)
    return rows


@pytest.mark.parametrize("store", [IN_CODE, ""])
def test_settings_that_agree_are_not_warned_of(
    place: Place, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    written(place, store)
    monkeypatch.setenv("GANTLINE_APP", "stall:jobs")
    monkeypatch.setenv("GANTLINE_STORE", "sqlite:///code.db")
    assert "Warning" not in place.run("job", "submit", "add", "1").stderr
    assert "warn" not in [row["result"] for row in doctor(place)]


def test_a_worker_on_another_store_than_its_application_is_warned_of(place: Place) -> None:
    written(place, IN_CODE)
    with place.process("--store", "sqlite:///flag.db", "worker", "stall:jobs") as program:
        started(program)
        assert "The application itself uses sqlite:///code.db (named in the code)" in program.stderr


def test_several_processes_say_once_where_the_jobs_are(place: Place) -> None:
    written(place)
    with place.process("worker", "stall:jobs", "--processes", "2") as program:
        program.wait_for("Working on", times=2)
        assert program.stderr.count("Jobs are kept in") == 1


def test_the_doctor_says_where_the_jobs_are_and_why(place: Place) -> None:
    written(place, IN_CODE)
    place.run("--app", "stall:jobs", "job", "submit", "add", "1")
    result = place.run("-o", "json", "--app", "stall:jobs", "doctor")
    first = json.loads(result.stdout)[0]
    file = place.folder / "code.db"
    assert first["check"] == f"jobs are kept in {file} (named in the code)"


def test_what_the_code_names_is_shown_as_such(place: Place) -> None:
    written(place, f"{IN_CODE}, trigger='amqp://me:hush@host'")
    rows = {row["setting"]: row for row in place.json("--app", "stall:jobs", "config", "show")}
    assert (rows["store"]["value"], rows["store"]["source"]) == ("sqlite:///code.db", "code")
    assert (rows["trigger"]["value"], rows["trigger"]["source"]) == ("amqp://…@host", "code")
    flagged = place.json("--app", "stall:jobs", "--store", "memory://", "config", "show")
    assert (flagged[0]["value"], flagged[0]["source"]) == ("memory://", "flag")


def test_the_settings_are_shown_though_the_application_cannot_be_imported(place: Place) -> None:
    result = place.run("-o", "json", "--app", "nope:jobs", "config", "show")
    assert (result.exit_code, len(json.loads(result.stdout)) > 5) == (0, True)
    assert "'nope'" in result.stderr


def test_an_application_that_cannot_be_imported_does_not_hide_what_a_flag_names(
    place: Place,
) -> None:
    place.make_store()
    flags = ("--app", "nope:jobs", "--store", "sqlite:///gantline.db")
    assert place.json(*flags, "job", "list") == []
    assert_refused(place.run("--app", "nope:jobs", "job", "list"), 2, "'nope'")


def test_an_empty_variable_names_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTLINE_STORE", "")
    assert Gantline().store_source == "sqlite:///gantline.db"
    place.make_store()
    assert place.database.exists()


@pytest.mark.parametrize("words", ["job list", "queue list", "worker stall:jobs"])
def test_a_store_that_nobody_else_can_see_is_warned_of(place: Place, words: str) -> None:
    """`Gantline("memory://")` and a worker beside it: both look fine, and nothing happens."""
    written(place, "'memory://'")
    warning = "Warning: memory:// lives in one process: what another one submits is not here."
    if words.startswith("worker"):
        with place.process(*words.split()) as program:
            started(program)
            assert warning in program.stderr
    else:
        result = place.run("--app", "stall:jobs", *words.split())
        assert (result.exit_code, result.stderr.splitlines()[0]) == (0, warning)
