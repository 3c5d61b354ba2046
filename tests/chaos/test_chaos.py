"""Under every fault, on every store: nothing is lost, nothing ends twice, nothing stands still."""

import os
from pathlib import Path
from typing import Final

import pytest

from gantline.contract.clock import SystemClock
from gantline.proving.fleet import NOT_ENDED
from gantline.proving.proof import ProofSettings, prove
from gantline.proving.report import PROVEN, Report
from gantline.stores import store_from_url
from tests.chaos.cases import FAULTS, Store, make_case
from tests.chaos.results import Result, write
from tests.chaos.trouble import SEED, Trouble
from tests.proof import say

pytestmark = [pytest.mark.chaos, pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]

SECONDS_VARIABLE: Final = "GANTLINE_CHAOS_SECONDS"
_CASES: Final = [(store, fault) for fault, stores in FAULTS.items() for store in stores]
# Beside the trouble some processes are killed, so that it is known how fast others take over.
_DRAWN: Final = ("kill", "lost answer", "refused call", "late write")


async def _prove(url: str, own_url: str, trouble: Trouble, folder: Path) -> Report:
    # Those that supervisors have stopped would be woken by nobody.
    is_supervised = trouble.name == "SIGSTOP of all"
    settings = ProofSettings(
        seconds=float(os.environ.get(SECONDS_VARIABLE, "45")),
        seed=SEED,
        workers=4,
        kinds=() if is_supervised else _DRAWN,
        keep=folder,
        trouble=trouble,
    )
    store = store_from_url(own_url, clock=SystemClock())
    report, _ = await prove(store, url, settings, label=url, notify=lambda progress: None)
    return report


@pytest.mark.parametrize(("store", "fault"), _CASES, ids=[f"{s}-{f}" for s, f in _CASES])
async def test_nothing_is_lost_doubled_or_stands_still(
    store: Store, fault: str, tmp_path: Path
) -> None:
    with make_case(store, fault, tmp_path) as case:
        report = await _prove(case.url, case.own_url, case.trouble, tmp_path / "kept")

    say(str(report))
    write(Result.of(store, fault, report))
    assert report.verdict == PROVEN, report
    assert report.faults[case.trouble.name] > 0, report
    assert not [line for line in report.ended_alone if NOT_ENDED in line], report.ended_alone
