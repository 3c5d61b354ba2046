"""gantline prove: refusals, an early end, and no process that outlives it."""

import json
import os
import signal
from pathlib import Path

import pytest

from gantline.proving.fleet import LOG
from tests.cli.conftest import Place

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(180)]


def _children(process: int) -> list[int]:
    return [
        int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def _is_gone(process: int) -> bool:
    """Or dead, and whoever inherits it has yet to notice."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_store_that_holds_a_job_is_refused_with_the_next_step(place: Place) -> None:
    job_id = place.submit("echo", "1")

    result = place.run("prove", "--minutes", "0.1")

    assert result.exit_code == 2
    assert "gantline.db holds jobs already" in result.stderr
    assert "Name an empty one: a new file, ?schema=… or ?prefix=…." in result.stderr
    assert place.status(job_id) == "Queued"


def test_a_store_in_memory_is_refused(place: Place) -> None:
    result = place.run("--store", "memory://", "prove")
    assert result.exit_code == 2
    assert "lives in one process" in result.stderr


def test_a_folder_that_holds_files_is_refused_and_the_store_is_not_made(place: Place) -> None:
    (place.folder / "kept").mkdir()
    (place.folder / "kept" / "report.json").write_text("{}")

    result = place.run("prove", "--keep", "kept")

    assert result.exit_code == 2
    assert "holds files already. Name an empty folder." in result.stderr
    assert not place.database.exists()


@pytest.mark.wide
def test_an_early_end_is_reported_and_leaves_nothing(place: Place) -> None:
    with place.process(
        "prove", "--json", "--seed", "5", "--workers", "2", "--keep", "kept"
    ) as proof:
        proof.wait_for("Making faults: 5 of 60 s")
        proof.process.send_signal(signal.SIGINT)
        code = proof.exit_code(120)

    report = json.loads(proof.stdout)
    assert (code, report["verdict"]) == (0, "PROVEN"), proof.stdout
    assert report["interrupted"]
    assert (report["seed"], report["lost"], report["doubled"], report["stalls"]) == (5, 0, 0, 0)
    assert report["minutes"] < 1
    assert not place.database.exists()
    assert json.loads((place.folder / "kept" / "report.json").read_text()) == report
    assert list((place.folder / "kept").glob("*" + LOG))


@pytest.mark.wide
def test_no_process_outlives_a_proof_that_is_killed_not_even_a_frozen_one(place: Place) -> None:
    with place.process("prove", "--seed", "5", "--workers", "2", "--keep", "kept") as proof:
        proof.wait_for("Making faults: 5 of 60 s")
        children = _children(proof.process.pid)
        os.kill(children[0], signal.SIGSTOP)
        proof.process.kill()
        proof.process.wait()
    assert len(children) >= 2
    place.eventually(lambda: all(map(_is_gone, children)), "all of its processes have ended")
