"""Workers of the battery passport are killed at every step: nothing is lost, doubled or changed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.examples.conftest import PLACES, Place
from tests.examples.killed_passports import MOMENTS
from tests.examples.passports import JOBS_OF_A_SAMPLE

pytestmark = pytest.mark.timeout(120)


def killed(place: Place, out: Path, moment: str = "") -> Any:
    """What is there in the end, when workers were killed at that moment of every step."""
    subprocess.run(
        [sys.executable, "-m", "tests.examples.killed_passports", *place, str(out), moment],
        timeout=100,
        check=True,
    )
    return msgspec.json.decode(out.read_bytes())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What comes out where nobody is killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return killed(Place(f"sqlite:///{folder}/passports.db", ""), folder / "out")


@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        ("sqlite", "written"),
        ("redis and sqlite", "ended"),
        *(
            pytest.param(kind, moment, marks=pytest.mark.chaos)
            for kind in PLACES
            for moment in MOMENTS
        ),
    ],
)
def test_killed_at_every_step_the_same_comes_out_byte_for_byte(
    undisturbed: Any, make_place: Callable[[str], Place], tmp_path: Path, kind: str, moment: str
) -> None:
    disturbed = killed(make_place(kind), tmp_path / "disturbed", moment)
    assert disturbed["rows"] == undisturbed["rows"]
    assert disturbed["jobs"] == undisturbed["jobs"] == JOBS_OF_A_SAMPLE
    assert disturbed["statuses"] == {"Completed": 10}
    assert undisturbed["crashes"] == {}
    if "redis" in kind:
        # The next step may begin, and kill, while the end of the last is on its way to the queue.
        assert disturbed["crashes"].keys() == JOBS_OF_A_SAMPLE.keys()
    else:
        # Who dies after the commit has done the job.
        crashes = {} if moment == "ended" else dict.fromkeys(JOBS_OF_A_SAMPLE, 1)
        assert disturbed["crashes"] == crashes
