"""The recorder: every call with its answer, before it is made; nothing that is secret."""

import inspect
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from gantline.app.gantline import Gantline
from gantline.contract.errors import StoreUnavailable
from gantline.contract.outcome import Success
from gantline.contract.results import Applied
from gantline.contract.snapshot import Progress
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import StateGuard, Transition
from gantline.proof.call import ROLLED_BACK, Call, Submitted
from gantline.proof.history import (
    PLAIN,
    HistoryFile,
    MemoryHistory,
    _Recorded,
    read_histories,
    read_history,
    recorded,
)
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.factories import lane_requests, make_new, register_sessions
from gantline.testing.faults import Crash, CrashPoint, intercepted
from tests.harness import SqliteHarness

LEASE = timedelta(seconds=30)


def verbs() -> set[str]:
    return {
        name
        for name, member in inspect.getmembers(JobStore, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_verb_of_the_protocol_is_recorded() -> None:
    named = {name for name in vars(_Recorded) if not name.startswith("_")}
    assert verbs() - named == PLAIN


async def a_life(store: JobStore) -> None:
    key = DedupeKey(KeyKind.REQUEST, "default", "user-1", "hidden-key", b"body", LEASE)
    new = make_new({"secret": "hidden-payload"}, idempotency_key="hidden-key", request_key=key)
    await register_sessions(store, "w")
    await store.insert([new])
    await store.ping()
    (run,) = await store.claim("w", uuid4(), lane_requests(), lease=LEASE)
    await store.renew("w", [run.ref], lease=LEASE)
    await store.progress([Progress(run.ref, 50, "hidden-phase")])
    done = Transition.completed(run, Success(result=b'"hidden-result"'), hold_key=LEASE)
    await store.apply([done])
    await store.get([run.job.job_id], tenant_id=None)
    await store.events(after=0, limit=10)
    await store.history(run.job.job_id, tenant_id=None)
    guard = StateGuard(JobStatus.COMPLETED, "default")
    await store.delete([(run.job.job_id, guard)])


async def test_what_was_asked_and_answered_is_the_same_from_memory_and_from_a_file(
    tmp_path: Path,
) -> None:
    memory, file = MemoryHistory(), HistoryFile(tmp_path, "p")
    store = MemoryStore(clock=FakeClock())
    await a_life(recorded(recorded(store, file, process="p"), memory, process="p"))
    read = read_histories(tmp_path)
    verbs = ["write_records", "insert", "ping", "claim", "renew"]
    assert [call.verb for call in read][:5] == verbs

    def parts(calls: list[Call]) -> list[bytes]:
        return [msgspec.json.encode((one.verb, one.asked, one.answers)) for one in calls]

    assert parts(read) == parts(memory.calls)
    assert [(one.first, one.last) for one in read] == [
        (one.first, one.last) for one in memory.calls
    ]
    assert all(one.is_certain and one.process == "p" for one in read)


async def test_no_payload_result_phase_or_key_is_written(tmp_path: Path) -> None:
    await a_life(recorded(MemoryStore(clock=FakeClock()), HistoryFile(tmp_path, "p"), process="p"))
    file = tmp_path / "p.history"
    text = file.read_text()
    assert "completed" in text
    assert "hidden" not in text
    assert file.stat().st_mode & 0o077 == 0


async def test_a_call_is_written_before_it_is_made(tmp_path: Path) -> None:
    async def look(verb: str, call: object) -> None:
        (_, calls) = read_history(tmp_path / "p.history")
        assert [(one.verb, one.ended) for one in calls] == [("insert", None)]
        raise Crash

    store = intercepted(MemoryStore(clock=FakeClock()), look)
    with pytest.raises(Crash):
        await recorded(store, HistoryFile(tmp_path, "p"), process="p").insert([make_new(1)])


async def test_a_line_that_was_torn_by_a_kill_ends_the_file(tmp_path: Path) -> None:
    await a_life(recorded(MemoryStore(clock=FakeClock()), HistoryFile(tmp_path, "p"), process="p"))
    file = tmp_path / "p.history"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    _, calls = read_history(file)
    assert [one.is_answered for one in calls] == [True] * 10 + [False]


async def test_a_history_that_cannot_be_written_ends_and_the_calls_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "folder"
    file.write_text("not a folder")
    store = recorded(MemoryStore(clock=FakeClock()), HistoryFile(file, "p"), process="p")
    await a_life(store)
    assert len(caplog.records) == 1


async def test_an_error_leaves_the_effect_unknown_and_has_no_end() -> None:
    history = MemoryHistory()
    store = CrashPoint(at=1, after=True).wrap(MemoryStore(clock=FakeClock()))
    with pytest.raises(Crash):
        await recorded(store, history, process="p").insert([make_new(1)])
    await recorded(store, history, process="p").ping()
    lost, ping = history.calls
    assert (lost.error, lost.is_certain, lost.may_have_effect) == ("Crash", False, True)
    assert lost.last > ping.last


async def test_a_change_in_a_transaction_ends_with_its_commit() -> None:
    harness, history = SqliteHarness(), MemoryHistory()
    store = recorded(await harness.open(), history, process="p")
    await store.insert([make_new(1), make_new(2)])
    await register_sessions(store, "w")
    first, second = await store.claim("w", uuid4(), lane_requests(), lease=LEASE)
    async with store.transaction() as transaction:
        await transaction.apply(Transition.completed(first, Success(), hold_key=LEASE))
        assert history.calls[-1].ended is None
    assert history.calls[-1].is_certain
    assert history.calls[-1].answers[0].is_applied  # type: ignore[union-attr]  # an Answer

    async def give_up() -> None:
        async with store.transaction() as transaction:
            await transaction.apply(Transition.completed(second, Success(), hold_key=LEASE))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await give_up()
    assert history.calls[-1].error == ROLLED_BACK
    assert not history.calls[-1].may_have_effect
    await harness.close()


async def test_an_insert_in_the_caller_s_transaction_is_never_certain() -> None:
    harness, history = SqliteHarness(), MemoryHistory()
    store = recorded(await harness.open(), history, process="p")
    with pytest.raises(Exception, match="connection"):
        await store.insert_in(object(), [make_new(1)])
    assert not history.calls[-1].is_certain
    assert isinstance(history.calls[-1].asked[0], Submitted)
    await harness.close()


async def test_the_setting_makes_each_process_write_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_HISTORY", str(tmp_path / "history"))
    for _ in range(2):
        async with Gantline("memory://") as jobs:
            assert await jobs.store.insert([make_new(1)]) == [Applied(1)]
    calls = read_histories(tmp_path / "history")
    assert len({call.process for call in calls}) == 2
    assert [call.verb for call in calls].count("insert") == 2


async def test_without_the_setting_nothing_is_put_around_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GANTLINE_HISTORY", raising=False)
    assert isinstance(Gantline("memory://").store, MemoryStore)


async def test_what_a_store_raises_is_raised() -> None:
    async def fail(verb: str, call: object) -> None:
        raise StoreUnavailable("away")

    store = recorded(
        intercepted(MemoryStore(clock=FakeClock()), fail), MemoryHistory(), process="p"
    )
    with pytest.raises(StoreUnavailable):
        await store.ping()
