"""A handler in a process has the same context, and its dependencies, as one on the loop."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gantline import AuditSettings, Gantline, JobFailed, JobPoisoned, JobStatus, WorkerSettings
from gantline.contract.domain_event import read_emitted
from gantline.contract.errors import GantlineError
from gantline.contract.status import Event
from gantline.contract.submission import NewJob
from gantline.worker import processes
from gantline.worker.process_child import Parent
from gantline.worker.processes import PROCESS_DIED
from gantline.worker.worker import Worker
from tests.process_jobs import (
    Mail,
    Order,
    Pipes,
    Task,
    asks_what_cannot_be_sent,
    awaits,
    deaf,
    describes,
    does_once,
    does_once_in_def,
    emits,
    fails_after_the_stop,
    follows_up,
    follows_up_wrongly,
    gives_up_a_question,
    greet,
    group,
    in_a_fork,
    in_transaction,
    is_interrupted,
    logs,
    logs_beside_a_fork,
    mail,
    multiply,
    pid,
    progresses,
    progresses_awaited,
    stopped,
    with_dependencies,
    with_dependencies_async,
    with_dependencies_stopped,
    wrapped,
)

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(120)]


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.wide)])
async def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gantline]:
    is_memory = request.param == "memory"
    url = "memory://" if is_memory else f"sqlite:///{tmp_path}/gantline.db"
    async with Gantline(url, include=[group]) as jobs:
        yield jobs


@asynccontextmanager
async def working(jobs: Gantline, **changes: Any) -> AsyncIterator[Worker]:
    plain = WorkerSettings(
        queues={"default": 2}, poll=timedelta(milliseconds=50), drain=timedelta(0)
    )
    async with asyncio.timeout(60):
        async with jobs.running(msgspec.structs.replace(plain, **changes)) as worker:
            yield worker


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "begun")
    return tmp_path / "begun"


async def has_begun(begun: Path) -> int:
    return int(await asyncio.to_thread(begun.read_text))


# -- what it sees --------------------------------------------------------------------------------


async def test_it_sees_its_job_and_run(jobs: Gantline) -> None:
    async with working(jobs):
        handle = await describes.submit(None, subject="invoice-17")
        seen = await handle.result(timeout=30)
    assert seen.pop("job_id") == str(handle.job_id)
    assert seen.pop("run_token") != str(handle.job_id)
    assert seen.pop("deadline") > "2026"
    assert seen == {"subject": "invoice-17", "attempt": 1, "fence": 1, "loop": True}


async def test_its_logger_labels_every_line(
    jobs: Gantline, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(jobs):
        handle = await logs.submit(None)
        await handle.result(timeout=30)
    (line,) = [record for record in caplog.records if record.message == "it goes on"]
    found = vars(line)
    assert (found["job_id"], found["job_type"]) == (str(handle.job_id), "logs")
    assert (line.levelno, line.process == os.getpid()) == (logging.WARNING, False)


async def test_what_it_emits_comes_with_its_completion_or_not_at_all(jobs: Gantline) -> None:
    async with working(jobs):
        handles = [await emits.submit(fails) for fails in (False, True)]
        for handle in handles:
            await handle.wait(timeout=30)
        of_one, of_the_other = [
            await jobs.store.history(handle.job_id, tenant_id=None) for handle in handles
        ]
    (event,) = read_emitted(of_one[-1].emitted)
    assert (event.type, event.aggregate_id) == ("ORDER_SHIPPED", "o-1")
    assert bytes(event.payload) == '{"parcel":"p-ü"}'.encode()
    assert [row.emitted for row in of_the_other] == [None]


async def test_what_it_wants_audited_is_where_the_application_audits_jobs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for from_jobs in (False, True):
        audit = AuditSettings(from_jobs=from_jobs)
        async with Gantline("memory://", include=[group], audit=audit) as jobs, working(jobs):
            await (await emits.submit(False)).wait(timeout=30)
            page = await jobs.store.events(after=0, limit=9)
        audited = [one.is_audit for one in read_emitted(page[-1].entry.emitted)]
        assert audited == [False, True][: 1 + from_jobs]
    needs = [one for one in caplog.messages if "needs an application with AuditSettings" in one]
    assert len(needs) == 1


async def test_a_payload_of_an_older_version_is_upgraded(jobs: Gantline) -> None:
    new = greet.prepare({"first": "", "last": ""})
    body = msgspec.Raw(json.dumps({"name": "Ada Lovelace"}).encode())
    old = msgspec.structs.replace(new.job, payload=body, payload_version=1)
    async with working(jobs):
        await jobs.submit_prepared(NewJob(old, b"1"))
        assert await greet.handle(old.job_id).result(timeout=30) == "Lovelace, Ada"


# -- what it reports and asks --------------------------------------------------------------------


async def test_its_progress_is_shown_and_logged(jobs: Gantline, begun: Path) -> None:
    async with working(jobs):
        handle = await progresses.submit(Pipes(str(begun)))
        await has_begun(begun)
        await handle.wait(timeout=30)
        rows = await jobs.store.history(handle.job_id, tenant_id=None)
    seen = [(row.percent, row.phase) for row in rows if row.event is Event.PROGRESSED]
    assert seen == [(40.0, "half � way"), (0.0, "later")]


async def test_progress_is_not_sent_faster_than_it_is_written(jobs: Gantline) -> None:
    """The parent reads on when it has written; the rest waits in the socket, then in the child."""
    async with working(jobs):
        assert await (await progresses_awaited.submit(3000)).result(timeout=60) == 3000


async def test_its_follow_ups_are_submitted_with_its_completion(jobs: Gantline) -> None:
    async with working(jobs):
        handle = await follows_up.submit(Order("ada", {"priority": 1}), owner="ann")
        followed = mail.handle(await handle.result(timeout=30))
        job = await followed.status()
    assert (job.job.parent_job_id, job.job.created_by) == (handle.job_id, "ann")
    assert (job.job.idempotency_key, job.job.priority) == ("mail-ada", 1)
    assert job.status is JobStatus.QUEUED, "it has its delay"


async def test_several_arguments_reach_it_and_what_follows(jobs: Gantline) -> None:
    async with working(jobs):
        handle = await multiply.send(7, by=3, then=True)
        assert await handle.result(timeout=30) == 21
        (followed,) = [job async for job in jobs.find(subject="followed")]
        assert await multiply.handle(followed.job.job_id).result(timeout=30) == 6


async def test_a_run_that_fails_submits_no_follow_up(jobs: Gantline) -> None:
    job_id = uuid4()
    async with working(jobs):
        handle = await follows_up.submit(Order("ada", {"job_id": job_id}, fails=True))
        with pytest.raises(JobFailed):
            await handle.result(timeout=30)
    assert await jobs.store.get([job_id], tenant_id=None) == [None]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("type", "InvalidInput: The application of this worker does not know the job type 'undec"),
        ("payload", "InvalidPayload: "),
        ("priority", "InvalidInput: priority is 'high'."),
        ("prioritty", "InvalidInput: A submit has no option 'prioritty'. Is 'priority' meant?"),
        ("queue", ""),
        ("subject", ""),
    ],
)
async def test_a_wrong_follow_up_is_refused_where_it_is_written(
    jobs: Gantline, option: str, message: str
) -> None:
    async with working(jobs):
        said = await (await follows_up_wrongly.submit(option)).result(timeout=30)
    assert said.startswith(message) if message else not said


async def test_once_is_asked_of_the_store(jobs: Gantline) -> None:
    async with working(jobs):
        assert await (await does_once.submit("a")).result(timeout=30) is True
        assert await (await does_once.submit("a")).result(timeout=30) is False
        assert await (await does_once.submit("b")).result(timeout=30) is True


@pytest.mark.parametrize(
    ("job", "payload", "message"),
    [
        (does_once_in_def, "a", "ctx.once() needs an `async def` handler; this is a `def`."),
        (in_transaction, None, "ctx.transaction() needs a handler on the loop: no process can "),
    ],
)
async def test_what_a_process_cannot_do_is_refused(
    jobs: Gantline, job: Any, payload: Any, message: str
) -> None:
    async with working(jobs):
        with pytest.raises(JobFailed) as failed:
            await (await job.submit(payload)).result(timeout=30)
    assert message in str(failed.value)


async def test_a_fork_cannot_speak_for_its_handler(jobs: Gantline) -> None:
    async with working(jobs):
        said = await (await in_a_fork.submit(None)).result(timeout=30)
    assert said.startswith("A process that a handler has started cannot use its Context.")


# -- stops ---------------------------------------------------------------------------------------


async def test_a_coroutine_in_a_process_is_cancelled_where_it_waits(
    jobs: Gantline, begun: Path, tmp_path: Path
) -> None:
    async with working(jobs) as worker:
        handle = await awaits.submit(Pipes(str(begun), str(tmp_path / "seen")))
        await has_begun(begun)
        await handle.cancel()
        await handle.wait(timeout=30)
    assert worker.counts == {Event.CANCELLED: 1}
    assert (tmp_path / "seen").read_text() == "cancelled"


async def test_an_error_after_a_cancel_decides_as_it_does_on_the_loop(
    jobs: Gantline, begun: Path
) -> None:
    async with working(jobs) as worker:
        handle = await fails_after_the_stop.submit(Pipes(str(begun)))
        await has_begun(begun)
        await handle.cancel()
        await handle.wait(timeout=30)
    assert worker.counts == {Event.FAILED: 1}


async def test_a_handler_that_does_not_stop_is_killed(
    jobs: Gantline, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.1)
    async with working(jobs) as worker:
        handle = await deaf.submit(Pipes(str(begun)))
        await has_begun(begun)
        await handle.cancel()
        await handle.wait(timeout=30)
    assert worker.counts == {Event.CANCELLED: 1}


async def test_a_child_that_is_used_again_does_not_see_the_last_stop(
    jobs: Gantline, begun: Path
) -> None:
    async with working(jobs, queues={"default": 1}) as worker:
        handle = await stopped.submit(Pipes(str(begun), "does_not_look"))
        child = await has_begun(begun)
        await handle.cancel()
        assert await handle.result(timeout=30) == "partial"
        assert await (await pid.submit(None)).result(timeout=30) == child
    assert worker.counts == {Event.COMPLETED: 2}


async def test_a_child_that_is_killed_from_outside_is_a_failed_attempt(
    jobs: Gantline, begun: Path
) -> None:
    async with working(jobs):
        handle = await deaf.submit(Pipes(str(begun)), max_attempts=1)
        os.kill(await has_begun(begun), signal.SIGKILL)
        with pytest.raises(JobPoisoned, match=PROCESS_DIED):
            await handle.result(timeout=30)


# -- dependencies --------------------------------------------------------------------------------


@pytest.mark.parametrize("job", [with_dependencies, with_dependencies_async])
@pytest.mark.parametrize("fails", [False, True])
async def test_dependencies_are_opened_in_the_child_for_each_run_and_closed_after_it(
    jobs: Gantline, tmp_path: Path, job: Any, fails: bool
) -> None:
    path = tmp_path / "notes"
    async with working(jobs):
        for _ in range(2):
            await (await job.submit(Task(str(path), fails))).wait(timeout=30)
    end = "after Permanent" if fails else "committed"
    once = ["open", "open too", "used", "used too", "closed too", end]
    assert path.read_text().split("\n") == [*once, *once, ""]


async def test_a_dependency_commits_nothing_of_a_handler_that_saw_the_stop(
    jobs: Gantline, tmp_path: Path, begun: Path
) -> None:
    path = tmp_path / "notes"
    async with working(jobs) as worker:
        handle = await with_dependencies_stopped.submit(Task(str(path), begun=str(begun)))
        await has_begun(begun)
        await handle.cancel()
        await handle.wait(timeout=30)
    assert worker.counts == {Event.CANCELLED: 1}
    assert path.read_text() == "open\nafter RunStopped\n"


# -- the way to the parent -----------------------------------------------------------------------


async def test_a_question_that_is_given_up_harms_neither_this_run_nor_the_next(
    jobs: Gantline,
) -> None:
    async with working(jobs, queues={"default": 1}):
        for _ in range(3):
            handle = await gives_up_a_question.submit()
            await handle.result(timeout=30)


async def test_a_question_that_cannot_be_sent_leaves_later_ones_alone(jobs: Gantline) -> None:
    async with working(jobs, queues={"default": 1}):
        for _ in range(2):
            handle = await asks_what_cannot_be_sent.submit()
            assert await handle.result(timeout=30) == "InvalidInput"


@pytest.mark.parametrize("job", [logs_beside_a_fork, is_interrupted], ids=["fork", "signal"])
async def test_no_message_is_broken(jobs: Gantline, job: Any) -> None:
    async with working(jobs):
        handle = await job.submit()
        assert await handle.result(timeout=50) in (0, "20")


@pytest.mark.parametrize("what", ["message", "question"])
def test_a_signal_that_raises_at_any_moment_stops_no_later_message(what: str) -> None:
    here, there = socket.socketpair()
    parent = Parent(here)

    def call() -> None:
        if what == "message":
            parent.send(processes.LogLine("log", logging.INFO, "x", 0.0))
        else:
            with suppress(GantlineError):  # that is how it is answered
                parent.prepare(mail, Mail("a"), {})

    for work in (parent.write, parent.listen, partial(_refuse_all, there)):
        Thread(target=work, daemon=True).start()
    moments = 0
    while _is_interrupted(call, at=moments + 1):
        moments += 1
        later = Thread(target=call, daemon=True)
        later.start()
        later.join(10)
        assert not later.is_alive(), f"interrupted at step {moments}"
    assert moments > 10


def _refuse_all(there: socket.socket) -> None:
    """Answer all questions, as the parent does."""
    incoming = there.makefile("rb")
    while header := incoming.read(4):
        said = json.loads(incoming.read(int.from_bytes(header)))
        if "number" in said:
            reply = processes.Reply(said["number"], problem="No.")
            there.sendall(processes.framed(msgspec.json.encode(reply)))


def _is_interrupted(call: Callable[[], None], *, at: int) -> bool:
    """Raise before the n-th bytecode, as a signal's handler may; False: there are not so many.

    Counted are those of the way to the parent and of what it waits with.
    """
    left = at

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in _INTERRUPTED:
            return None
        frame.f_trace_opcodes = True
        left -= 1
        if not left:
            raise TimeoutError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except TimeoutError:
        return True
    finally:
        sys.settrace(before)
    return False


_INTERRUPTED = {"process_child.py", "threading.py", "_base.py"}


async def test_a_child_that_has_ended_while_it_was_idle_gets_no_job(jobs: Gantline) -> None:
    async with working(jobs, queues={"default": 1}):
        for _ in range(5):
            child = await (await pid.submit()).result(timeout=30)
            os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):  # the pool has seen it already
                # Blocking, so that the pool has no turn in which it could see it.
                os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
            assert await (await pid.submit()).result(timeout=30) != child


async def test_a_def_that_returns_a_coroutine_has_not_done_its_work(jobs: Gantline) -> None:
    async with working(jobs):
        with pytest.raises(JobFailed, match=r"CONFIGURATION_ERROR.*returned a coroutine"):
            await (await wrapped.submit()).result(timeout=30)
