"""Sessions of a real server, moved statement by statement: every order of two verbs' statements.

A statement that waits for a lock is left waiting, and the other session goes on.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest
from psycopg import AsyncConnection, transaction

from gantline.contract.errors import GantlineError
from gantline.contract.snapshot import RunRef
from gantline.runtime import hosted_by
from gantline.stores.memory import MemoryStore
from gantline.stores.postgres import PostgresStore, connection
from gantline.stores.postgres.claim import Claims
from gantline.stores.postgres.location import parse_url
from gantline.stores.postgres.store import _Opened
from gantline.stores.slow_counts import SlowCounts
from gantline.testing.clock import FakeClock
from gantline.testing.factories import number, register_sessions
from gantline.testing.model.actors import LEASE, ORDINARY
from gantline.testing.model.explorer import finish
from gantline.testing.model.invariants import check_state
from gantline.testing.model.models import FIRST, KEY, SECOND
from gantline.testing.model.state import State, observe
from gantline.testing.model.world import (
    Actor,
    Desk,
    Model,
    Player,
    StandingHost,
    World,
    acting,
)
from tests.servers.postgres import PostgresServer

_session: ContextVar["Session | None"] = ContextVar("session", default=None)
_SOON_SECONDS: Final = 0.004
_SLEEPS: Final = "sleeps"
_RESET: Final = """
DELETE FROM {0}.job; DELETE FROM {0}.ready; DELETE FROM {0}.turn; DELETE FROM {0}.gate;
DELETE FROM {0}.lease; DELETE FROM {0}.log; DELETE FROM {0}.event_batch;
DELETE FROM {0}.event_gap; DELETE FROM {0}.dedupe;
DELETE FROM {0}.tally; DELETE FROM {0}.tally_delta; DELETE FROM {0}.record;
UPDATE {0}.event_cursor SET last = 0, high = 0;
SELECT setval(pg_get_serial_sequence('{0}.log', 'id'), 1, false)
"""
_DIGEST: Final = """
SELECT md5(concat_ws('|',
    (SELECT string_agg(t::text, ',' ORDER BY id) FROM {0}.job AS t),
    (SELECT string_agg(t::text, ',' ORDER BY job_id) FROM {0}.ready AS t),
    (SELECT string_agg(t::text, ',' ORDER BY job_id) FROM {0}.lease AS t),
    (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM {0}.turn AS t),
    (SELECT string_agg(t::text, ',' ORDER BY name) FROM {0}.gate AS t),
    (SELECT string_agg(t::text, ',' ORDER BY id) FROM {0}.log AS t),
    (SELECT string_agg(t::text, ',' ORDER BY key, kind) FROM {0}.dedupe AS t),
    (SELECT string_agg(t::text, ',' ORDER BY last) FROM {0}.event_batch AS t),
    (SELECT string_agg(log_id::text, ',' ORDER BY log_id) FROM {0}.event_gap AS t),
    (SELECT string_agg(t::text, ',' ORDER BY t::text) FROM {0}.tally_delta AS t)))
"""
# The one that our code calls: of the same name under an older signature there may be another.
DEFINITION: Final = """
SELECT pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = %s::regnamespace AND proname = %s ORDER BY pronargs DESC LIMIT 1
"""
_BLOCKED: Final = "SELECT cardinality(pg_blocking_pids(%s)) > 0"

Verb = Callable[[Desk, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Pair:
    """Two verbs that meet, and what was done before."""

    name: str
    begin: Callable[[Desk, FakeClock], Awaitable[Any]]
    one: Verb
    other: Verb
    also: tuple[tuple[str, str], ...] = ()
    """What both may be answered beside what fits an order of the two; the test says why."""

    def __str__(self) -> str:
        return self.name


@dataclass
class Session:
    """One of the two, with a store and connections of its own."""

    player: Player
    statement: str = ""
    turn: asyncio.Future[None] | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    process: int = 0
    """The server's, that the last statement was sent to."""
    is_blocked: bool = False
    is_let_go: bool = False
    """Nobody watches any more: it runs to its end."""
    seen: list[str] = field(default_factory=list)
    task: asyncio.Task[str] | None = None

    async def park(self, statement: str) -> None:
        if self.is_let_go:
            return
        self.statement = statement
        self.turn = asyncio.get_running_loop().create_future()
        self.moved.set()
        await self.turn

    @property
    def has_ended(self) -> bool:
        return self.task is not None and self.task.done()


class SteppedConnection(connection.Connection):
    """Sends a statement only when its session is moved."""

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        session, statement = _session.get(), _statement(gen)
        if session is None or not statement:
            return await super().wait(gen, *args, **kwargs)
        cursor = gen.gi_frame.f_locals["self"]
        await session.park(statement)
        session.process = self.info.backend_pid
        try:
            answer = await super().wait(gen, *args, **kwargs)
        except Exception as error:
            session.seen.append(f"{statement} {error!r}")
            raise
        session.seen.append(f"{statement} {_rows(cursor)}")
        return answer


def _statement(gen: Any) -> str:
    """What a generator of psycopg will send; nothing for what only ends the statement before."""
    caller, values = gen.gi_code.co_name, gen.gi_frame.f_locals
    if caller in ("_execute_gen", "_executemany_gen_pipeline"):
        query = values["query"]
        text = query.decode() if isinstance(query, bytes) else str(query)
        return re.sub(r"w[0-9a-f]{32}", "gantline", " ".join(text.split()))[:60]
    # To begin a transaction is nothing that others could see, so it is no step of its own.
    is_end = caller == "_exit_gen" and isinstance(values["self"], transaction.AsyncTransaction)
    return "COMMIT" if is_end else ""


def _rows(cursor: Any) -> str:
    result = getattr(cursor, "pgresult", None)
    if result is None:
        return ""
    columns = [n for n in range(result.nfields) if result.fname(n) != b"extract"]  # a duration
    rows = [[result.get_value(row, n) for n in columns] for row in range(result.ntuples)]
    return f"{result.command_status!r} {rows}"


@dataclass(frozen=True)
class Outcome:
    """What both were answered, and what is left."""

    answers: tuple[str, ...]
    jobs: bytes

    @classmethod
    def of(cls, answers: list[str], state: State) -> "Outcome":
        # Not the envelope: where it equals a default it may be written or left out.
        jobs = [
            msgspec.structs.asdict(job) | {"job": job.job.job_id} for job in state.jobs.values()
        ]
        left = (jobs, list(state.history.values()), state.holder)
        return cls(tuple(answers), msgspec.json.encode(left))


_SESSIONS: Final = ("warm", "worker", "heir", "begin", "session-1", "session-2")


class Stage:
    """A schema, and three stores on it: one for each session, and one that looks."""

    def __init__(self, server: PostgresServer, *, held_commits: bool, patient: bool) -> None:
        self.patient = patient
        self.schema = f"w{uuid4().hex}"
        self.location = parse_url(server.url(schema=self.schema))
        before_commit = (lambda: None) if held_commits else None
        self.looker = PostgresStore(self.location, clock=FakeClock())
        self.stores = [
            PostgresStore(self.location, clock=FakeClock(), before_commit=before_commit)
            for _ in range(2)
        ]

    async def open(self) -> None:
        self.monitor = await AsyncConnection.connect(self.location.conninfo, autocommit=True)
        for store in (self.looker, *self.stores):
            await store.open()
            await self._register()
            await store.claim("warm", uuid4(), [ORDINARY], lease=LEASE)
            await store.renew("warm", [RunRef(number(9), number(9))], lease=LEASE)
            async with store.transaction():
                pass

    async def _register(self) -> None:
        await register_sessions(self.looker, *_SESSIONS)

    async def close(self) -> None:
        for store in (self.looker, *self.stores):
            await store.close()
        await self.monitor.execute(f"DROP SCHEMA {self.schema} CASCADE".encode())
        await self.monitor.close()

    async def replace_in(self, function: str, old: str, new: str) -> None:
        """Break a function of the server."""
        cursor = await self.monitor.execute(DEFINITION, (self.schema, function))
        ((text,),) = await cursor.fetchall()
        assert old in text, f"{function} no longer says {old!r}: name what it says now"
        await self.monitor.execute(text.replace(old, new).encode())

    async def reset(self, clock: FakeClock) -> None:
        """As if new: nothing stored, nothing kept between calls but the lanes."""
        await self.monitor.execute(_RESET.format(self.schema).encode(), prepare=False)
        for store in (self.looker, *self.stores):
            opened, store._clock = store._parts, clock
            store._opened = _Opened(opened.calls)
            store._opened.lanes = opened.lanes
            store._opened.claims = Claims(opened.calls, opened.lanes)
            store._opened.counts = SlowCounts(lambda: 0.0, lambda: 0.0)
        await self._register()

    async def digest(self) -> str:
        cursor = await self.monitor.execute(_DIGEST.format(self.schema).encode())
        return str((await cursor.fetchone() or [""])[0])

    async def is_blocked(self, process: int) -> bool:
        cursor = await self.monitor.execute(_BLOCKED, (process,))
        return bool((await cursor.fetchone() or [False])[0])


@asynccontextmanager
async def stage_on(
    server: PostgresServer,
    patch: pytest.MonkeyPatch,
    *,
    held_commits: bool = True,
    patient: bool = True,
) -> AsyncIterator[Stage]:
    """`held_commits`: a commit is a step of its own, also of a verb that is one statement.
    `patient`: nobody gives up waiting for a lock while who has it can go on."""
    patch.setattr(connection, "Connection", SteppedConnection)
    sleep = asyncio.sleep

    async def park_instead(seconds: float, result: Any = None) -> Any:
        session = _session.get()
        return await (sleep(seconds, result) if session is None else session.park(_SLEEPS))

    patch.setattr(asyncio, "sleep", park_instead)
    stage = Stage(server, held_commits=held_commits, patient=patient)
    await stage.open()
    try:
        yield stage
    finally:
        await stage.close()


async def _nothing(desk: Desk) -> None:
    """No actor of the model moves here."""


_MODEL: Final = Model(name="pair", begin=_nothing, actors=(), job_ids=(FIRST, SECOND), key=KEY)


class _Harness:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    async def open(self, *, before_commit: Any = None) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        """The stage stays."""


class Run:
    """One run of a pair, from an empty store."""

    def __init__(self, stage: Stage, pair: Pair) -> None:
        self.stage = stage
        self.pair = pair
        self.clock = FakeClock()
        self.steps: list[str] = []
        self.deadlocks = 0
        self._host = StandingHost(self.clock)
        self._world = World(_MODEL, _Harness(self.clock), stage.looker)
        self.sessions: list[Session] = []

    async def begin(self) -> None:
        await self.stage.reset(self.clock)
        with hosted_by(self._host):
            context = await self.pair.begin(
                Desk(self._world, self.stage.looker, "begin"), self.clock
            )
            verbs = (self.pair.one, self.pair.other)
            for index, (store, verb) in enumerate(zip(self.stage.stores, verbs, strict=True)):
                session = Session(Player(index, Actor("one", _nothing)))
                desk = Desk(self._world, store, f"session-{index + 1}")
                session.task = asyncio.create_task(self._act(session, verb(desk, context)))
                self.sessions.append(session)
                await self._settle_down(session)

    async def _act(self, session: Session, verb: Awaitable[Any]) -> str:
        _session.set(session)
        acting.set(session.player)
        try:
            answer = str(await verb)
        except GantlineError as error:
            answer = repr(error)
        finally:
            session.moved.set()
        return answer

    def choices(self) -> list[int]:
        """Who can be moved. Who is patient sleeps until the other cannot go on."""
        waiting = [index for index, one in enumerate(self.sessions) if one.turn is not None]
        awake = [index for index in waiting if self.sessions[index].statement != _SLEEPS]
        return awake if awake and self.stage.patient else waiting

    async def step(self, index: int) -> None:
        session = self.sessions[index]
        self.steps.append(f"{index + 1}: {session.statement}")
        turn, session.turn = session.turn, None
        assert turn is not None
        with hosted_by(self._host):
            turn.set_result(None)
            await self._settle_down(session)
            for other in self.sessions:
                if other.is_blocked:
                    await self._settle_down(other)
            while not self.choices() and not all(one.has_ended for one in self.sessions):
                self.deadlocks += 1  # both wait: the server ends one of them after a second
                waiting = [one.moved.wait() for one in self.sessions if one.is_blocked]
                await asyncio.wait(
                    [asyncio.create_task(one) for one in waiting],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for other in self.sessions:
                    if other.is_blocked:
                        await self._settle_down(other)

    async def _settle_down(self, session: Session) -> None:
        """Wait until a session is at its next statement, has ended, or waits for a lock."""
        was_blocked, session.is_blocked = session.is_blocked, False
        while True:
            try:
                async with asyncio.timeout(0 if was_blocked else _SOON_SECONDS):
                    await session.moved.wait()
            except TimeoutError:
                was_blocked = False
                if session.process and await self.stage.is_blocked(session.process):
                    session.is_blocked = True
                    self.steps.append("   … waits for a lock")
                    return
                continue
            session.moved.clear()
            if session.task is not None and session.turn is None:
                await asyncio.wait([session.task])
            return

    async def key(self) -> str:
        """Equal where the same can follow: what is committed, and what both were answered."""
        positions = [
            (one.seen, one.statement, one.turn is None, one.is_blocked, one.has_ended)
            for one in self.sessions
        ]
        return f"{await self.stage.digest()} {positions}"

    async def observe(self) -> State:
        return await observe(
            self.stage.looker, now=self.clock.now(), job_ids=[FIRST, SECOND], key=KEY
        )

    async def outcome(self) -> Outcome:
        """Check the end of the run, and that whatever is live is still found."""
        answers = [one.task.result() for one in self.sessions if one.task is not None]
        state = await self.observe()
        check_state(state)
        with hosted_by(self._host):
            await finish(self._world)
        return Outcome.of(answers, state)

    async def close(self) -> None:
        """Let both verbs end; what they do is not looked at any more."""
        with hosted_by(self._host):
            for session in self.sessions:
                session.is_let_go = True
                if session.turn is not None:
                    session.turn.set_result(None)
            tasks = [one.task for one in self.sessions if one.task is not None]
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Explored:
    states: int = 0
    steps: int = 0
    runs: int = 0
    ends: int = 0
    waits: int = 0
    deadlocks: int = 0
    outcomes: set[Outcome] = field(default_factory=set)


class NotSerial(AssertionError):
    """Both answers and what is left fit neither order of the two verbs."""


async def explore_pair(stage: Stage, pair: Pair) -> Explored:
    """Go through all interleavings of both verbs' statements."""
    serial = [await _in_order(pair, order) for order in ((0, 1), (1, 0))]
    alone = [] if stage.patient else [await _in_order(pair, (index,)) for index in (0, 1)]
    found, visited = Explored(), set[str]()
    pending: list[tuple[int, ...]] = [()]
    while pending:
        schedule = pending.pop()
        found.runs += 1
        run = Run(stage, pair)
        try:
            await run.begin()
            for index in schedule:
                await run.step(index)
            while (key := await run.key()) not in visited:
                visited.add(key)
                choices = run.choices()
                if not choices:
                    found.ends += 1
                    outcome = await run.outcome()
                    found.outcomes.add(outcome)
                    _check_serial(run, outcome, serial, alone)
                    break
                pending += [(*schedule, index) for index in choices[1:]]
                schedule = (*schedule, choices[0])
                found.steps += 1
                await run.step(choices[0])
        except AssertionError as error:
            error.add_note("\n".join([str(pair), *run.steps]))
            raise
        finally:
            found.waits += sum("waits" in step for step in run.steps)
            found.deadlocks += run.deadlocks
            await run.close()
    found.states = len(visited)
    return found


def _check_serial(run: Run, outcome: Outcome, serial: list[Outcome], alone: list[Outcome]) -> None:
    """Both fit an order of the two; who lost patience may have been refused, and done nothing."""
    is_known = outcome in serial or outcome.answers in run.pair.also
    if not is_known and outcome.jobs not in [one.jobs for one in [*alone, *serial[: len(alone)]]]:
        expected = "\n".join(str(one.answers) for one in serial)
        raise NotSerial(f"{outcome.answers}\nfits neither\n{expected}")


async def _in_order(pair: Pair, order: tuple[int, ...]) -> Outcome:
    """Do one after the other on the memory store, which says what is right."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    world = World(_MODEL, _Harness(clock), store)
    answers, verbs = ["", ""], (pair.one, pair.other)
    await register_sessions(store, *_SESSIONS)
    with hosted_by(StandingHost(clock)):
        context = await pair.begin(Desk(world, store, "begin"), clock)
        for index in order:
            desk = Desk(world, store, f"session-{index + 1}")
            answers[index] = str(await verbs[index](desk, context))
        state = await observe(store, now=clock.now(), job_ids=[FIRST, SECOND], key=KEY)
    return Outcome.of(answers, state)
