"""What a hostile review found, kept as rules."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from threading import Event as Signal
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from gantline.contract.errors import InvalidInput, StoreError, StoreUnavailable
from gantline.contract.outcome import Outcome, Success
from gantline.contract.query import JobFilter
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict
from gantline.contract.snapshot import Progress, Run, RunRef
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import StateGuard, Transition
from gantline.manager.manager import Ending
from gantline.stores.postgres import failures, records
from gantline.stores.postgres.sql import Sql
from gantline.testing.conformance import Bench
from gantline.testing.conformance.bench import LEASE, PERMANENT
from gantline.testing.factories import lane_requests, make_new
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer


@pytest.fixture
async def bench(postgres: PostgresServer) -> AsyncIterator[Bench]:
    bench = await Bench.on(PostgresHarness(postgres))
    yield bench
    await bench.close()


class Held:
    """A commit that waits until it is let go."""

    def __init__(self) -> None:
        self.is_writing, self.may_commit = Signal(), Signal()
        self.may_commit.set()  # opening commits too

    def __call__(self) -> None:
        self.is_writing.set()
        self.may_commit.wait(timeout=20)

    def hold(self) -> None:
        self.is_writing.clear()
        self.may_commit.clear()


async def test_an_event_of_the_youngest_transaction_is_not_given_up_while_it_runs(
    bench: Bench,
) -> None:
    """A snapshot's xmax knows what has ended, not what was begun last."""
    await bench.submit_many(2)
    first, second = await bench.claim()
    await bench.store.sequence(limit=10)  # folds the tally, whose own number would hide the fault
    older, younger = Held(), Held()
    old = await bench.harness.open(before_commit=older)
    young = await bench.harness.open(before_commit=younger)
    older.hold()
    younger.hold()
    # The older transaction has its number before the younger one, and takes its log id after it.
    async with psycopg_transaction(bench, old) as begun:
        late = asyncio.create_task(young.apply([Transition.released(first)]))
        await asyncio.to_thread(younger.is_writing.wait, 20)
        assert await begun(second) == Applied(3)
    assert await bench.store.sequence(limit=10) == 1
    assert await bench.store.sequence(limit=10) == 0
    younger.may_commit.set()
    assert await late == [Applied(3)]
    while await bench.store.sequence(limit=10):
        pass
    seen = await bench.store.events(after=0, limit=10)
    assert {event.entry.job_id for event in seen} == {first.job.job_id, second.job.job_id}


class psycopg_transaction:  # noqa: N801  # reads as a phrase
    """A handler's transaction that has its number from the start."""

    def __init__(self, bench: Bench, store: Any) -> None:
        self._context = store.transaction()

    async def __aenter__(self) -> Callable[[Run], Any]:
        transaction = await self._context.__aenter__()
        await transaction.connection.execute("SELECT pg_current_xact_id()")
        return lambda run: transaction.apply(Transition.released(run))

    async def __aexit__(self, *error: object) -> None:
        await self._context.__aexit__(*error)


async def test_two_who_saw_no_record_do_not_both_write_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await bench.another()
    looked, second = records.read_current, list[Any]()

    async def look(*arguments: Any) -> Any:
        found = await looked(*arguments)
        if not second:  # the other one writes and commits between our look and our write
            second.append(None)
            second[0] = await other.store.write_records([write(b"2")])
        return found

    def write(owner: bytes) -> RecordWrite:
        return RecordWrite("locks", "one", owner, expected=0)

    monkeypatch.setattr(records, "read_current", look)
    first = list(await bench.store.write_records([write(b"1")]))
    assert second == [[Applied(1)]]
    assert first == [Conflict(by="locks/one")]


async def test_an_instant_that_no_client_can_read_is_refused(
    bench: Bench, postgres: PostgresServer
) -> None:
    assert isinstance(bench.harness, PostgresHarness)
    location = bench.harness.location
    async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
        for field in ("createdAt", "scheduledAt"):
            refused = (psycopg.errors.IntegrityError, psycopg.errors.InvalidParameterValue)
            with pytest.raises(refused):
                await connection.execute(
                    location.sql("SELECT gantline.submit(%s)"),
                    (f'{{"jobType": "far", "{field}": "20000-01-01T00:00:00Z"}}',),
                )
            await connection.rollback()
    assert await bench.store.claim("w", uuid4(), lane_requests("far"), lease=LEASE) == []


@pytest.mark.parametrize("state", ["08006", "08P01", "57P05", "57P04", "25P04"])
def test_a_connection_that_was_ended_is_lost_whatever_its_state_is_called(state: str) -> None:
    error = psycopg.errors.lookup(state)("gone")
    assert failures.is_retryable(error)
    assert isinstance(failures.translate_error(error), StoreUnavailable)


async def test_no_function_can_be_led_astray_by_a_search_path(bench: Bench) -> None:
    assert isinstance(bench.harness, PostgresHarness)
    location = bench.harness.location
    async with await psycopg.AsyncConnection.connect(location.conninfo) as connection:
        rows = await connection.execute(
            """
            SELECT proname FROM pg_proc JOIN pg_language AS language ON language.oid = prolang
            WHERE pronamespace = %s::regnamespace AND language.lanname = 'plpgsql'
              AND provolatile = 'v'
              AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)
            """,
            (location.schema,),
        )
        assert await rows.fetchall() == []


# -- the order of keys -----------------------------------------------------------------------------

# Out of order; and in the order of bytes, which is not that of a dictionary, "B" is the first.
NAMES = ["b", "a", "B", "ä", "z", "a b", "a-b", "\U0001f98a", "\ufb01"]
IS_FIRST = "scope = 'test' AND key = 'B' AND kind = 'job'"


class Keys:
    """All jobs of `NAMES`, and somebody who holds the first of their keys."""

    def __init__(self, bench: Bench) -> None:
        assert isinstance(bench.harness, PostgresHarness)
        self._bench = bench
        self._location = bench.harness.location

    async def insert(self) -> None:
        """In a transaction of our own, which waits as long as it has to."""
        new = [make_new(name, idempotency_key=name) for name in NAMES]
        async with await psycopg.AsyncConnection.connect(self._location.conninfo) as caller:
            assert await self._bench.store.insert_in(caller, new) == [Applied(1)] * len(new)

    async def runs(self) -> list[Run]:
        runs = await self._bench.claim()
        return sorted(runs, key=lambda run: NAMES.index(run.job.idempotency_key))

    async def settle(self, outcome: Outcome) -> Awaitable[object]:
        endings = [Ending(run, outcome) for run in await self.runs()]
        return self._bench.manager.settle(endings)

    async def check(self, step: Awaitable[object]) -> None:
        """Who has to wait for the first key has locked no other."""
        first = f"SELECT FROM gantline.dedupe WHERE {IS_FIRST} FOR UPDATE"
        others = """
            SELECT key FROM gantline.dedupe WHERE scope = 'test' AND key <> 'B'
            FOR UPDATE SKIP LOCKED
        """
        async with await psycopg.AsyncConnection.connect(self._location.conninfo) as holder:
            await holder.execute(self._location.sql(first))
            waiting = asyncio.ensure_future(step)
            await self._until_somebody_waits()
            async with await psycopg.AsyncConnection.connect(self._location.conninfo) as other:
                free = await (await other.execute(self._location.sql(others))).fetchall()
            await holder.rollback()
        await waiting
        assert {key for (key,) in free} == set(NAMES) - {"B"}

    async def _until_somebody_waits(self) -> None:
        waiting = f"""
            SELECT FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND query LIKE '%{self._location.schema}.%'
        """.encode()
        connected = psycopg.AsyncConnection.connect(self._location.conninfo, autocommit=True)
        async with await connected as watch, asyncio.timeout(20):
            while not await (  # noqa: ASYNC110  # only the server can tell
                await watch.execute(waiting)
            ).fetchall():
                await asyncio.sleep(0.01)


async def test_keys_are_locked_in_one_order_on_every_path(bench: Bench) -> None:
    """Else two that touch the same ones wait for each other."""
    keys = Keys(bench)
    await keys.insert()
    await keys.check(await keys.settle(Success()))  # holding
    bench.clock.advance(timedelta(days=30))
    await keys.check(keys.insert())  # taking what has expired
    once = tuple(DedupeKey(KeyKind.ONCE, "default", "zzz", name) for name in NAMES)
    await keys.check(await keys.settle(Success(once=once)))  # holding, and marking
    bench.clock.advance(timedelta(days=30))
    await keys.insert()
    await keys.check(await keys.settle(PERMANENT))  # freeing
    await keys.insert()
    runs = await keys.runs()
    await bench.manager.settle([Ending(run, Success()) for run in runs])
    gone = [(run.job.job_id, StateGuard(JobStatus.COMPLETED, run.job.tenant_id)) for run in runs]
    await keys.check(bench.store.delete(gone))


WATCH = """
CREATE TABLE gantline.touched (place bigserial, tenant text, scope text, key text, kind text);
CREATE FUNCTION gantline.touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gantline.touched (tenant, scope, key, kind)
    VALUES (NEW.tenant, NEW.scope, NEW.key, NEW.kind);
    RETURN NEW;
END $$;
CREATE TRIGGER touch BEFORE INSERT ON gantline.dedupe
FOR EACH ROW EXECUTE FUNCTION gantline.touch();
"""


async def test_new_keys_are_taken_in_that_order_too(bench: Bench) -> None:
    assert isinstance(bench.harness, PostgresHarness)
    location = bench.harness.location
    async with await psycopg.AsyncConnection.connect(location.conninfo) as admin:
        await admin.execute(location.sql(WATCH))
        await admin.commit()
        new = [
            make_new(
                name,
                idempotency_key=name,
                request_key=DedupeKey(KeyKind.REQUEST, "default", "test", name, b"", LEASE),
            )
            for name in NAMES
        ]
        assert await bench.store.insert(new) == [Applied(1)] * len(new)
        touched = location.sql(
            "SELECT tenant, scope, key, kind FROM gantline.touched ORDER BY place"
        )
        rows = await (await admin.execute(touched)).fetchall()
    assert len(rows) == 2 * len(NAMES)
    assert rows == sorted(rows)


# -- lists -----------------------------------------------------------------------------------------


async def test_a_job_that_moves_while_it_is_listed_is_listed_once_as_it_stood(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, other, runs = await bench.submit(), await bench.another(), list[Run]()
    asked = Sql.rows

    async def rows(sql: Sql, text: str, *values: object) -> list[Any]:
        """Before it is read, it is only looked how far the list goes."""
        found = await asked(sql, text, *values)
        if "lease.phase" in text:
            with monkeypatch.context() as patch:
                patch.setattr(Sql, "rows", asked)
                runs.extend(await other.claim())
        return found

    live = frozenset({JobStatus.QUEUED, JobStatus.RUNNING})
    for wanted in (live, frozenset({JobStatus.QUEUED})):
        with monkeypatch.context() as patch:
            patch.setattr(Sql, "rows", rows)
            page = await bench.store.find(JobFilter(statuses=wanted), limit=10)
        assert [(job.job.job_id, job.status) for job in page.items] == [(moving, JobStatus.QUEUED)]
        await bench.store.apply([Transition.released(runs.pop())])


# -- what cannot be kept ---------------------------------------------------------------------------

UNSOUND = {
    "the role of a leader": lambda store: store.lead("a\x00b", "owner", lease=LEASE),
    "its owner": lambda store: store.lead("role", "a\ud800b", lease=LEASE),
    "a session": lambda store: store.claim("a\ud800b", uuid4(), lane_requests(), lease=LEASE),
    "a queue": lambda store: store.claim("w", uuid4(), lane_requests(queue="a\x00b"), lease=LEASE),
    "a type": lambda store: store.insert([make_new(1, job_type="a\ud800b")]),
    "a tenant": lambda store: store.insert([make_new(1, tenant_id="a\x00b")]),
    "a version": lambda store: store.insert([make_new(1, payload_version=2**40)]),
    "a phase": lambda store: store.progress([Progress(RunRef(uuid4(), uuid4()), 1.0, "\ud800")]),
}


@pytest.mark.parametrize("verb", UNSOUND.values(), ids=UNSOUND)
async def test_what_cannot_be_kept_is_refused_in_our_words(
    bench: Bench, verb: Callable[[Any], Any]
) -> None:
    with pytest.raises(InvalidInput, match="PostgreSQL cannot take this"):
        await verb(bench.store)
    await bench.submit()


async def test_no_error_shows_a_payload(bench: Bench) -> None:
    """The server repeats a row that breaks a rule, in hexadecimal."""
    new = make_new("hush hush", attempt=5, max_attempts=1)
    with pytest.raises(StoreError) as told:
        await bench.store.insert([new])
    said = "".join(traceback.format_exception(told.value))
    assert "violates check constraint" in said
    assert b"hush hush".hex() not in said
    assert told.value.__context__ is None
