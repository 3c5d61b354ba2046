"""gantline worker and dev: what they serve, how they stop, and what they refuse."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Place, Program, assert_refused

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(60)]

SHOP = """
import asyncio
from pathlib import Path
from gantline import Gantline

jobs = Gantline()

@jobs.job("hold", queue="docs")
async def hold(flag: str) -> None:
    while not Path(flag).exists():
        await asyncio.sleep(0.02)

@jobs.job("add")
async def add(number: int) -> int:
    return number + 1
"""
MODULES = {
    "shop": SHOP,
    "raises": "raise RuntimeError('boom\\nand more')",
    "exits": "import sys\nsys.exit(9)",
    "syntax": "def (",
    "imports": "import not_installed_anywhere",
    "without": "x = 1",
    "two": "from gantline import Gantline\na = Gantline()\nb = Gantline()",
    "no_app": "jobs = 3",
    "no_jobs": "from gantline import Gantline\njobs = Gantline()",
}


@pytest.fixture
def shop(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, text in MODULES.items():
        (place.folder / f"{name}.py").write_text(text)
    monkeypatch.setenv("GANTLINE_POLL_SECONDS", "0.1")
    return place


def alive(shop: Place) -> list[dict[str, Any]]:
    """The workers that are registered; none while the first one is still making its store."""
    result = shop.run("-o", "json", "sessions")
    sessions: list[dict[str, Any]] = json.loads(result.stdout) if result.exit_code == 0 else []
    return sessions


def stop(program: Program, number: int = signal.SIGTERM) -> None:
    program.process.send_signal(number)
    assert program.exit_code() == 0, program.stderr
    assert program.stdout == ""
    assert "Traceback" not in program.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_says_what_it_serves_and_stops_with_0(shop: Place, number: int) -> None:
    with shop.process("worker", "shop:jobs") as program:
        program.wait_for("Working on default (10), docs (10).")
        stop(program, number)
        assert "Stopped." in program.stderr


def test_a_worker_serves_the_queues_that_are_named(shop: Place) -> None:
    with shop.process("worker", "shop:jobs", "-q", "docs:3,default") as program:
        program.wait_for("Working on docs (3), default (10).")
        stop(program)


def test_a_module_with_one_application_needs_no_name(shop: Place) -> None:
    with shop.process("worker", "shop") as program:
        program.wait_for("Working on")
        stop(program)


@pytest.mark.parametrize("words", [("worker",), ("dev",)])
def test_the_application_may_be_named_by_the_settings(shop: Place, words: tuple[str]) -> None:
    (shop.folder / "gantline.toml").write_text('app = "shop:jobs"\n')
    with shop.process(*words) as program:
        program.wait_for("Working on")
        stop(program)


def test_a_watched_job_that_completes_is_0_and_has_its_result(shop: Place) -> None:
    job_id = shop.submit("add", "1")
    with shop.process("worker", "shop:jobs") as program:
        with shop.process("job", "watch", job_id) as watch:
            assert watch.exit_code() == 0, watch.stderr
        stop(program)
    assert shop.json("job", "get", job_id)["result"] == 2


def test_sessions_show_the_worker_until_it_stops(shop: Place) -> None:
    with shop.process("worker", "shop:jobs") as program:
        shop.eventually(lambda: bool(alive(shop)), "there is a session")
        (session,) = alive(shop)
        assert session["pid"] == program.process.pid
        assert session["queues"] == {"default": 10, "docs": 10}
        assert "default:10,docs:10" in shop.run("sessions").stdout
        assert set(session["jobTypes"]) == {"add", "hold"}
        assert "serves" not in session
        assert {"sessionId", "host", "version", "startedAt", "draining"} <= session.keys()
        assert shop.run("doctor").exit_code == 0
        stop(program)
    assert alive(shop) == []


@pytest.mark.parametrize("source", ["flag", "file"])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_works_on_the_store_that_the_settings_name(
    shop: Place, source: str, processes: str
) -> None:
    """The same store as `job submit` uses: a worker beside it would wait for ever."""
    flags: tuple[str, ...] = ("--store", "sqlite:///other.db")
    if source == "file":
        (shop.folder / "gantline.toml").write_text('store = "sqlite:///other.db"\n')
        flags = ()
    job_id = shop.json(*flags, "job", "submit", "add", "1")["jobId"]
    with shop.process(*flags, "worker", "shop:jobs", "--processes", processes) as program:
        program.wait_for("Working on")
        with shop.process(*flags, "job", "watch", job_id, "--timeout", "10") as watch:
            assert watch.exit_code() == 0, watch.stderr
    assert not shop.database.exists()


def test_a_killed_child_is_started_anew(shop: Place) -> None:
    def pids() -> set[int]:
        return {row["pid"] for row in alive(shop)}

    with shop.process("worker", "shop:jobs", "--processes", "2") as program:
        shop.eventually(lambda: len(pids()) == 2, "two children are registered")
        first = pids()
        killed = min(first)
        os.kill(killed, signal.SIGKILL)  # a child of the process that this test started
        shop.eventually(lambda: bool(pids() - first), "a new child is registered")
        program.wait_for(f"worker {killed} ended with -9")
        program.wait_for("Working on", times=3)
        stop(program)


def test_ctrl_c_at_a_terminal_lets_the_jobs_of_all_processes_finish(shop: Place) -> None:
    """A terminal sends the signal to the whole group: children must not count it twice."""
    flag = shop.folder / "flag"
    job_id = shop.submit("hold", f'"{flag}"', "--queue", "docs")
    with shop.process("worker", "shop:jobs", "--processes", "2") as program:
        program.wait_for("Working on", times=2)
        shop.eventually(lambda: shop.status(job_id) == "Running", "the job runs")
        os.killpg(program.process.pid, signal.SIGINT)  # the group that this test started
        program.wait_for("Stopping:", times=2)
        assert shop.run("job", "watch", job_id, "--timeout", "1").exit_code == 124
        flag.touch()
        assert program.exit_code() == 0
    assert shop.status(job_id) == "Completed"


def test_a_stop_while_a_killed_child_waits_to_start_again_is_0(shop: Place) -> None:
    with shop.process("worker", "shop:jobs", "--processes", "2") as program:
        shop.eventually(lambda: len(alive(shop)) == 2, "two children are registered")
        killed = min(row["pid"] for row in alive(shop))
        os.kill(killed, signal.SIGKILL)  # a child of the process that this test started
        program.wait_for(f"worker {killed} ended with -9")
        stop(program)


def test_a_worker_is_started_anew_after_so_many_jobs(shop: Place) -> None:
    with shop.process("worker", "shop:jobs", "--recycle", "2jobs") as program:
        program.wait_for("Working on", times=1)
        for number in range(3):
            job_id = shop.submit("add", str(number))
            assert shop.run("job", "watch", job_id, "--timeout", "30").exit_code == 0
        program.wait_for("stopping to be started again after 2 runs")
        program.wait_for("Working on", times=2)
        stop(program)
        assert "ended with" not in program.stderr, "it was taken for a crash"


def replace(module: Path, text: str) -> None:
    """At once, so that nobody imports half of it."""
    new = module.with_suffix(".new")
    new.write_text(text)
    new.replace(module)


def test_a_development_worker_starts_anew_when_the_code_changes(shop: Place) -> None:
    with shop.process("dev", "shop:jobs") as program:
        program.wait_for("Working on default (10), docs (10).")
        replace(shop.folder / "shop.py", SHOP.replace("docs", "papers"))
        program.wait_for("Working on default (10), papers (10).")
        stop(program)


def test_a_development_worker_waits_for_broken_code_to_be_mended(shop: Place) -> None:
    with shop.process("dev", "syntax:jobs") as program:
        program.wait_for("SyntaxError")
        replace(shop.folder / "syntax.py", SHOP)
        program.wait_for("Working on")
        stop(program)


@pytest.mark.parametrize("word", ["list", "status", "stop"])
def test_who_looks_for_workers_learns_where_they_are_listed(place: Place, word: str) -> None:
    assert_refused(place.run("worker", word), 2, repr(word), "gantline sessions", "module:app")


@pytest.mark.parametrize("words", [("worker",), ("dev", "--no-reload")], ids=" ".join)
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("nope:jobs", "There is no module 'nope'"),
        ("nope.deeper:jobs", "There is no module 'nope.deeper'"),
        ("raises:jobs", "RuntimeError: boom"),
        ("syntax:jobs", "SyntaxError"),
        ("exits:jobs", "exits"),
        ("imports:jobs", "not_installed_anywhere"),
        ("without", "without"),
        ("without:jobs", "without:jobs"),
        ("two", "two"),
        ("no_app:jobs", "no_app:jobs"),
        ("shop:add", "shop:add"),
        (":jobs", "module"),
        ("..:jobs", "module"),
    ],
)
def test_what_is_no_application_is_refused_in_one_line(
    shop: Place, words: tuple[str, ...], target: str, why: str
) -> None:
    assert_refused(shop.run(*words, target), 2, why)


def test_a_module_is_not_missing_because_one_that_it_imports_is(shop: Place) -> None:
    """`shop_client` is there and imports `shop_c`, which is not: say that, not the contrary."""
    (shop.folder / "shop_client.py").write_text("import shop_c")
    assert_refused(shop.run("worker", "shop_client:jobs"), 2, "'shop_c'")


def test_a_missing_attribute_is_told_as_missing(shop: Place) -> None:
    """A typing error is not the same as a wrong object."""
    result = shop.run("worker", "shop:jbos")
    assert_refused(result, 2, "jbos", "shop:jobs")


def test_many_processes_of_no_application_are_refused_in_one_line(shop: Place) -> None:
    with shop.process("worker", "nope:jobs", "--processes", "2") as program:
        assert program.exit_code() == 2
        assert len(program.stderr.splitlines()) == 1, program.stderr


def test_no_application_at_all_is_refused_with_the_next_step(shop: Place) -> None:
    assert_refused(shop.run("worker"), 2, "module:name")
    assert_refused(shop.run("dev", "--no-reload"), 2, "module:name")
    assert_refused(shop.run("dev"), 2, "module:name")


@pytest.mark.parametrize(
    "options",
    [
        ("--log-level", "nope"),
        ("--drain", "-1"),
        ("--drain", "nan"),
        ("--recycle", "sometimes"),
        ("--processes", "0"),
        ("-q", "docs:x"),
        ("-q", "docs:0"),
        ("-q", ","),
    ],
    ids=" ".join,
)
def test_an_option_out_of_range_is_refused_before_the_worker_starts(
    shop: Place, options: tuple[str, str]
) -> None:
    with shop.process("worker", "shop:jobs", *options) as program:
        shop.eventually(
            lambda: program.process.poll() is not None or "Working on" in program.stderr,
            "the worker ends or starts",
        )
        assert "Working on" not in program.stderr, "the worker started"
        assert program.exit_code() == 2, program.stderr
        assert "Traceback" not in program.stderr


def test_the_log_level_reaches_the_children(shop: Place) -> None:
    (shop.folder / "loud.py").write_text(
        SHOP + "\nimport logging\nlogging.getLogger('loud').debug('heard')\n"
    )
    words = ("worker", "loud:jobs", "--processes", "2", "--log-level", "DEBUG")
    with shop.process(*words) as program:
        program.wait_for("Working on", times=2)
        stop(program)
        assert program.stderr.count("heard") >= 3, "once here and once in each child"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_on_a_store_that_cannot_be_used_is_5(
    shop: Place, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    monkeypatch.setenv("GANTLINE_STORE", f"sqlite:///{Path('missing/gantline.db')}")
    with shop.process("worker", "shop:jobs", "--processes", processes) as program:
        program.wait_for("Error: ")
        assert program.exit_code(20) == 5
        assert len(program.stderr.splitlines()) == 1, program.stderr


def test_a_module_with_a_bad_store_url_is_told_as_such(shop: Place) -> None:
    (shop.folder / "bad_store.py").write_text(
        "from gantline import Gantline\njobs = Gantline('nope://x')\n"
    )
    result = shop.run("worker", "bad_store:jobs")
    assert_refused(result, result.exit_code, "nope")
    assert result.exit_code in (2, 5)


# -- what it says when it cannot do anything -----------------------------------------------------


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_without_any_job_type_is_refused(shop: Place, processes: str) -> None:
    result = shop.run("worker", "no_jobs:jobs", "--processes", processes)
    assert_refused(result, 2, "declares no job, so that a worker has nothing to do. Declare one")


def test_a_queue_in_which_no_declared_job_is_is_named(shop: Place) -> None:
    with shop.process("worker", "shop:jobs", "-q", "doc:3,docs:3") as program:
        program.wait_for(
            "no declared job is in the queue 'doc'; those with jobs are: default, docs"
        )
        program.wait_for("Working on")
        stop(program)
        assert "the queue 'docs'" not in program.stderr


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_on_a_store_whose_jobs_have_moved_is_refused(shop: Place, processes: str) -> None:
    shop.submit("add", "1")
    here, there = f"sqlite:///{shop.database}", f"sqlite:///{shop.folder}/other.db"
    assert shop.run("store", "copy", here, there, "--yes").exit_code == 0
    result = shop.run("worker", "shop:jobs", "--processes", processes)
    assert_refused(result, 1, "its jobs were moved to another one. Use that one")


def test_a_first_signal_says_what_is_waited_for_and_what_a_second_does(shop: Place) -> None:
    job_id = shop.submit("hold", f'"{shop.folder / "flag"}"', "--queue", "docs")
    with shop.process("worker", "shop:jobs", "--drain", "600") as program:
        shop.eventually(lambda: shop.status(job_id) == "Running", "the job runs")
        program.process.send_signal(signal.SIGINT)
        program.wait_for(
            "Stopping: waiting up to 600 s for 1 running job; press Ctrl-C again to stop at once."
        )
        program.process.send_signal(signal.SIGINT)
        assert program.exit_code() == 130, program.stderr
    assert shop.status(job_id) == "Queued"


def test_where_workers_need_a_key_none_starts_without_one(
    shop: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_KEY_PEPPER", "1:0123456789abcdefghijklmnopqrstuvwxyz")
    shop.make_store()
    words = ("key", "create", "docs", "--system", "--scope", "workers:run")
    key = shop.json(*words)["key"]
    assert shop.run("key", "workers", "--require", "--yes").exit_code == 0
    for count in ("1", "2"):
        with shop.process("worker", "shop:jobs", "--processes", count) as program:
            assert program.exit_code() == 4
            assert "GANTLINE_WORKER_KEY is not set" in program.stderr
            assert "gantline key create" in program.stderr
    assert alive(shop) == []
    monkeypatch.setenv("GANTLINE_WORKER_KEY", key)
    with shop.process("worker", "shop:jobs") as program:
        program.wait_for("Working on")
        stop(program)
