"""What processes of a test did to their store, recorded and judged by the checker."""

from pathlib import Path
from typing import Final

from gantline.contract.store import JobStore
from gantline.proof.checker import check
from gantline.proof.history import read_histories
from gantline.proof.rest import read_rest

_FOLDER: Final = "history"


def history_in(folder: Path) -> Path:
    """Where the processes of a test record their calls: GANTLINE_HISTORY, or `recorded_in`."""
    return folder / _FOLDER


async def judge(store: JobStore, folder: Path) -> None:
    """Fail where the calls and what is stored at rest break a rule of the contract."""
    report = check(read_histories(history_in(folder)), rest=await read_rest(store))
    assert report.calls > 0, "nothing was recorded"
    assert report.violations == (), str(report)
