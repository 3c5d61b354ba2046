"""The troubles do what they say, and undo it."""

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gantline.proving.fleet import Fleet, FleetSettings
from gantline.proving.target import find_route
from tests.chaos.cases import FAULTS
from tests.chaos.of_processes import NoDescriptors, WrongClocks, fake_clock
from tests.chaos.of_the_store import FullDisk, file_system
from tests.chaos.results import VARIABLE, Result, write
from tests.chaos.trouble import Switched
from tests.chaos.versions import unpack_older


@asynccontextmanager
async def _no_fleet(folder: Path) -> AsyncIterator[Fleet]:
    route = find_route(f"sqlite:///{folder}/gantline.db")
    settings = FleetSettings(route=route, folder=folder, seed=1, lease=3)
    fleet = Fleet(settings, workers=0, clients=0)
    yield fleet
    await fleet.close()


class _Lamp(Switched):
    name = "dark"
    calm_seconds = 0.0
    seconds = (3600, 3600)

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.is_on = True

    def begin(self, fleet: Fleet) -> None:
        self.is_on = False

    def end(self, fleet: Fleet) -> None:
        self.is_on = True


async def test_a_state_that_is_interrupted_is_undone(tmp_path: Path) -> None:
    lamp = _Lamp()
    async with _no_fleet(tmp_path) as fleet:
        making = asyncio.create_task(lamp.make(fleet))
        async with asyncio.timeout(10):
            while lamp.is_on:  # noqa: ASYNC110  # changed in a thread
                await asyncio.sleep(0)
        making.cancel()
        await asyncio.wait({making})
    assert lamp.is_on


async def test_a_full_disk_takes_no_byte_until_it_is_emptied(tmp_path: Path) -> None:
    with file_system(tmp_path / "disk", megabytes=1) as disk:
        async with _no_fleet(tmp_path) as fleet:
            full = FullDisk(disk)
            full.begin(fleet)
            with pytest.raises(OSError, match="No space left"):
                (disk / "more").write_bytes(b"more")
            full.end(fleet)
            (disk / "more").write_bytes(b"more")


async def test_without_descriptors_no_file_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with _no_fleet(tmp_path) as fleet:
        monkeypatch.setattr(Fleet, "pids", [os.getpid()])
        NoDescriptors().begin(fleet)
        try:
            lowered = resource.getrlimit(resource.RLIMIT_NOFILE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert lowered[0] < before[0]
    assert lowered[1] == before[1]


def test_a_clock_jumps_while_its_process_runs(tmp_path: Path) -> None:
    if (library := fake_clock()) is None:
        pytest.skip("libfaketime is not installed")
    clocks = WrongClocks(tmp_path / "clocks", library, one_host=False)
    variables = clocks.variables("worker-1-1")
    said = [_now_by(variables)]
    Path(variables["FAKETIME_TIMESTAMP_FILE"]).write_text("-3600s\n")
    said.append(_now_by(variables))
    assert abs(said[0] - said[1] - 3600) < 700
    assert clocks.variables("worker-1-2") == variables
    assert clocks.variables("worker-2-1") != variables


def _now_by(variables: object) -> float:
    assert isinstance(variables, dict)
    program = "import time; print(time.time() - time.monotonic())"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=variables, capture_output=True, check=True)
    return float(done.stdout)


@pytest.mark.chaos  # where CI has no history of the code, there is no older one
def test_the_older_code_is_that_of_the_last_change_of_the_schema(tmp_path: Path) -> None:
    modules, commit = unpack_older(tmp_path)
    program = "import gantline, gantline.proving.child; print(gantline.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(modules)},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().startswith(str(tmp_path))
    assert len(commit) == 7


def test_every_fault_has_a_store() -> None:
    assert all(FAULTS.values())


def test_a_result_replaces_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(store: str, jobs: int) -> Result:
        return Result(
            store=store,
            fault="disk full",
            verdict="PROVEN",
            minutes=1,
            seed=1,
            faults={"kill": 1},
            calls=1,
            jobs=jobs,
            lost=0,
            unended=0,
            doubled=0,
            events=1,
            events_missing=0,
            stalls=0,
            others=0,
            ended_alone=0,
            recovery_p50=0.5,
            recovery_p99=0.5,
            recoveries=1,
        )

    file = tmp_path / "results.json"
    write(of("sqlite", 1), file)
    assert not file.exists(), "it is only written where that is asked for"
    monkeypatch.setenv(VARIABLE, "1")
    for result in (of("sqlite", 1), of("redis", 2), of("sqlite", 3)):
        write(result, file)
    assert file.read_text().count('"jobs"') == 2
    assert '"jobs": 3' in file.read_text()
