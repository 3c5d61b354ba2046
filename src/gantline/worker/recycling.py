"""When a process has worked enough, and should be started anew."""

import os
from pathlib import Path

from gantline.worker.settings import WorkerSettings


def is_worn_out(settings: WorkerSettings, *, ended: int) -> bool:
    """Whether it should be started anew: after so many runs, or grown beyond so much memory."""
    jobs, memory = settings.recycle_after_jobs, settings.recycle_above_bytes
    if jobs is not None and ended >= jobs:
        return True
    return memory is not None and _resident_bytes() > memory


def _resident_bytes() -> int:
    """How much memory this process has now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
