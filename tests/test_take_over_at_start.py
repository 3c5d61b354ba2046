"""A worker takes over from the one before it before it claims anything itself."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from gantline import Gantline, JobStatus
from gantline.manager.observer import Observer
from gantline.manager.sessions import store_id
from gantline.testing.factories import lane_requests, register_sessions
from gantline.worker.session_lock import SessionLock
from gantline.worker.take_over import TakeOver


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.CANCELLED], ids=str)
async def test_what_an_ended_worker_held_waits_again_before_the_first_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: JobStatus
) -> None:
    """Else several jobs that kill workers would each take one, and be found all at once."""
    monkeypatch.setattr("gantline.worker.session_lock._default_folder", lambda: tmp_path / "locks")
    jobs = Gantline(f"sqlite:///{tmp_path}/gantline.db")

    @jobs.job("test")
    async def handle() -> None: ...

    ended: list[None] = []
    async with jobs:
        submitted = await handle.submit(None)
        lease = timedelta(hours=1)
        await register_sessions(jobs.store, "dead")
        assert await jobs.store.claim("dead", uuid4(), lane_requests("test"), lease=lease)
        if status is JobStatus.CANCELLED:
            await submitted.cancel()
        _leave_free(SessionLock(await store_id(jobs.store), "dead"))
        take_over = TakeOver(
            jobs.store,
            "new",
            lease=lease,
            observer=Observer(),
            runs_ended=lambda: ended.append(None),
        )
        await take_over.open()
        job = await submitted.status()
        take_over.close()
    assert (job.status, job.crashes) == (status, 1)
    assert ended == [None]
    assert list((tmp_path / "locks").iterdir()) == []


def _leave_free(lock: SessionLock) -> None:
    """As a process does that ends without giving its lock back."""
    lock.take()
    content = lock._path.read_bytes()
    kept = lock._path.with_name("kept")
    lock._path.rename(kept)
    lock.release()
    kept.rename(lock._path)
    assert lock._path.read_bytes() == content
