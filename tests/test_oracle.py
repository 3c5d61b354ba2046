"""Stores against the memory store as oracle: any sequence of verbs, the same answers and state."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gantline.contract.errors import IllegalTransition
from gantline.contract.outcome import (
    LEASE_EXPIRED,
    ErrorInfo,
    Failure,
    LeaseLost,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    Success,
    TypeDisabled,
)
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.query import JobFilter, LaneRequest, Pruned, PruneRule, Visibility
from gantline.contract.records import RecordWrite
from gantline.contract.snapshot import JobSnapshot, Progress, Run
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.submission import DedupeKey, KeyKind, NewJob, external_key
from gantline.contract.transition import StateGuard, Transition
from gantline.manager.decide import decide, decide_cancel, decide_no_handler, decide_redrive
from gantline.stores.memory import MemoryStore
from gantline.stores.postgres import PostgresStore
from gantline.stores.sqlite import SqliteStore
from gantline.stores.sqlite.location import Location
from gantline.testing.clock import FakeClock
from gantline.testing.factories import CREATED_AT, make_new, number, register_sessions
from tests.harness import PostgresHarness, RedisHarness
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

TYPES = ("index", "parse", "mail")
QUEUES = ("default", "slow")
TENANTS = ("one", "two")
LEASE = timedelta(seconds=60)
ALL = JobFilter(tenant_id=None)

new_jobs = st.builds(
    make_new,
    st.integers(0, 2),
    # Few ids and keys, so that they are met again.
    job_id=st.integers(1, 30).map(number),
    job_type=st.sampled_from(TYPES),
    queue=st.sampled_from(QUEUES),
    tenant_id=st.sampled_from(TENANTS),
    priority=st.integers(0, 3),
    max_attempts=st.integers(1, 3),
    idempotency_key=st.sampled_from(("", "", "k1", "k2")),
    external_id=st.none() | st.integers(101, 103).map(number),
    subject_id=st.sampled_from(("", "s1")),
    created_by=st.sampled_from(("", "me", "you")),
    delay=st.sampled_from((timedelta(0), timedelta(0), timedelta(seconds=90))),
    expires_at=st.sampled_from((None, None, CREATED_AT + LEASE, CREATED_AT + 60 * LEASE)),
    logged=st.booleans(),
    request_key=st.none()
    | st.builds(
        DedupeKey,
        st.just(KeyKind.REQUEST),
        st.just("one"),
        st.just("user"),
        st.sampled_from(("r1", "r2")),
        st.sampled_from((b"a", b"b")),
        st.just(timedelta(hours=1)),
    ),
)
record_writes = st.builds(
    RecordWrite,
    st.just("space"),
    st.sampled_from(("a", "b")),
    st.sampled_from((b"1", b"2", None)),
    st.none() | st.integers(0, 6),
    st.sampled_from((None, timedelta(seconds=100))),
)
once_keys = st.builds(
    DedupeKey,
    st.just(KeyKind.ONCE),
    st.sampled_from(TENANTS),
    st.just("scope"),
    st.sampled_from(("o1", "o2")),
    st.just(b""),
    st.just(timedelta(hours=1)),
)
error = ErrorInfo("CODE", "message", "detail")
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(
        Success,
        st.sampled_from((None, b"1")),
        follow_ups=st.lists(new_jobs, max_size=2).map(tuple),
        once=st.lists(once_keys, max_size=1).map(tuple),
        records=st.lists(record_writes, max_size=1).map(tuple),
    ),
    st.just(Failure(error)),
    st.just(Failure(error, retryable=False)),
    st.just(Failure(error, retry_after=timedelta(0))),
    st.builds(Snoozed, st.sampled_from((timedelta(0), timedelta(seconds=30)))),
    st.just(Released()),
    st.just(Stopped()),
    st.just(TypeDisabled()),
)


class StoresAgree(RuleBasedStateMachine):
    """Does everything to both stores and compares what they say and what they hold."""

    numbers_events_alike = True

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = FakeClock()
        self.runs: list[Run] = []
        self.applied: list[Transition] = []
        self.claims = count(1)
        self.clock_jumps = 0

    @initialize()
    def open_both(self) -> None:
        self.oracle: JobStore = MemoryStore(clock=self.clock, tokens=_tokens())
        self.store = self.loop.run(self.opened())

    async def opened(self) -> JobStore:
        """Open the store that is compared, at an empty place."""
        raise NotImplementedError

    async def removed(self) -> None:
        raise NotImplementedError

    def teardown(self) -> None:
        self.loop.run(self.removed())
        self.loop.close()

    async def claimed(
        self, store: JobStore, session: str, claim_id: UUID, requests: list[LaneRequest]
    ) -> list[Run]:
        """A repeated claim promises the same runs, not their order."""
        await register_sessions(store, session)
        runs = await store.claim(session, claim_id, requests, lease=LEASE)
        return sorted(runs, key=lambda run: run.job.job_id)

    async def told(self, store: JobStore) -> list[Any]:
        """The events, as far as stores must agree on them."""
        return await store.events(after=0, limit=1000)

    def both(self, call: Callable[[JobStore], Awaitable[Any]]) -> Any:
        async def ask() -> tuple[Any, Any]:
            return await call(self.oracle), await call(self.store)

        expected, got = self.loop.run(ask())
        assert got == expected
        return expected

    def job(self, job_id: UUID) -> JobSnapshot | None:
        found: list[JobSnapshot | None] = self.loop.run(_get(self.oracle, job_id))
        return found[0]

    def apply(self, transitions: list[Transition]) -> None:
        self.applied = [*self.applied, *transitions][-20:]
        self.both(lambda store: store.apply(transitions))

    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=4))
    def insert(self, jobs: list[NewJob]) -> None:
        self.both(lambda store: store.insert(jobs))

    @rule(
        types=st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
        queues=st.lists(st.sampled_from(QUEUES), min_size=1),
        limit=st.integers(0, 4),
        session=st.sampled_from(("w1", "w2")),
        again=st.booleans(),
        logged=st.lists(st.sampled_from(TYPES), unique=True).map(tuple),
        at_most=st.dictionaries(st.sampled_from(TYPES), st.integers(-1, 2)),
        suspects=st.sampled_from(((), (), (1,), (2, 1, 0), (0, 3))),
    )
    def claim(
        self,
        types: list[str],
        queues: list[str],
        limit: int,
        session: str,
        again: bool,
        logged: tuple[str, ...],
        at_most: dict[str, int],
        suspects: tuple[int, ...],
    ) -> None:
        claim_id = number(next(self.claims))
        limits = tuple(at_most.items())
        requests = [
            LaneRequest(queue, tuple(types), limit, logged, limits, suspects) for queue in queues
        ]
        started = self.both(lambda store: self.claimed(store, session, claim_id, requests))
        if again:

            async def repeated(store: JobStore) -> list[Run]:
                # How long a job had been due is told once, and need not be remembered.
                runs = await self.claimed(store, session, claim_id, requests)
                return [msgspec.structs.replace(run, waited_seconds=None) for run in runs]

            started = self.both(repeated)
        self.runs = [*self.runs, *started][-15:]

    @precondition(lambda self: self.runs)
    @rule(pick=st.data(), outcome=outcomes)
    def settle(self, pick: st.DataObject, outcome: Outcome) -> None:
        run = pick.draw(st.sampled_from(self.runs))
        self.apply([decide(run, outcome, DEFAULT_POLICY, jitter=0.0)])

    @precondition(lambda self: len(self.runs) > 1)
    @rule(pick=st.data(), some=st.lists(outcomes, min_size=2, max_size=4))
    def settle_many(self, pick: st.DataObject, some: list[Outcome]) -> None:
        """Each carries no more than its own end: what one call's items do to each other is open."""
        runs = [pick.draw(st.sampled_from(self.runs)) for _ in some]
        bare = [Success() if isinstance(outcome, Success) else outcome for outcome in some]
        self.apply(
            [
                decide(run, outcome, DEFAULT_POLICY, jitter=0.0)
                for run, outcome in zip(runs, bare, strict=True)
            ]
        )

    @precondition(lambda self: self.applied)
    @rule(pick=st.data())
    def repeat(self, pick: st.DataObject) -> None:
        """A caller who never heard the answer."""
        transition = pick.draw(st.sampled_from(self.applied))
        self.both(lambda store: store.apply([transition]))

    @precondition(lambda self: self.runs)
    @rule(
        session=st.sampled_from(("w1", "w2")),
        percent=st.sampled_from((0.0, 33.3, 100.0)),
        logged=st.booleans(),
        lease=st.sampled_from((LEASE, LEASE / 2)),
    )
    def renew_and_progress(
        self, session: str, percent: float, logged: bool, lease: timedelta
    ) -> None:
        refs = [run.ref for run in self.runs]
        self.both(lambda store: store.renew(session, refs, lease=lease))
        self.both(lambda store: store.progress([Progress(refs[-1], percent, "phase", logged)]))

    @rule(job_id=st.integers(1, 30).map(number), operate=st.integers(0, 2))
    def operate(self, job_id: UUID, operate: int) -> None:
        job = self.job(job_id)
        if job is None:
            return
        try:
            transition = (
                decide_cancel(job, actor="op", version=None),
                decide_redrive(job, actor="op") if operate == 1 else None,
                decide_no_handler(job) if job.status is JobStatus.QUEUED else None,
            )[operate]
        except IllegalTransition:
            return
        if transition:
            self.apply([transition])

    @rule(
        job_id=st.integers(1, 30).map(number),
        status=st.sampled_from(JobStatus),
        tenant=st.sampled_from(TENANTS),
    )
    def delete(self, job_id: UUID, status: JobStatus, tenant: str) -> None:
        self.both(lambda store: store.delete([(job_id, StateGuard(status, tenant))]))

    @rule()
    def reap(self) -> None:
        late = self.both(_expired)
        self.apply([decide(run, LeaseLost(), DEFAULT_POLICY, jitter=0.0) for run in late])

    @rule(session=st.sampled_from(("w1", "w2")))
    def lose_a_session(self, session: str) -> None:
        """Its jobs come back at once, however often they crashed before: so there are suspects."""
        self.both(lambda store: store.expire_session(session))
        late = self.both(_expired)
        self.apply([Transition.crashed(run, LEASE_EXPIRED, delay=timedelta(0)) for run in late])

    @rule(seconds=st.sampled_from((0.000001, 45, 4000)))
    def set_the_clock_back(self, seconds: float) -> None:
        self.clock.shift(-timedelta(seconds=seconds))
        # When a role that was given back is free then, is left open: see `lead`.
        self.clock_jumps += 1

    @rule(age=st.sampled_from((timedelta(0), timedelta(minutes=5))), keep=st.none() | st.just(3))
    def prune(self, age: timedelta, keep: int | None) -> None:
        keep = keep if self.numbers_events_alike else None
        rules = [
            PruneRule(status, self.clock.now() - age) for status in JobStatus if status.is_terminal
        ]

        async def pruned(store: JobStore) -> Pruned:
            answer = await store.prune(rules, limit=100, keep_events_after=keep)
            return msgspec.structs.replace(answer, busy_seconds=0.0)

        self.both(pruned)

    @rule(writes=st.lists(record_writes, min_size=1, max_size=3))
    def write_records(self, writes: list[RecordWrite]) -> None:
        self.both(lambda store: store.write_records(writes))

    @rule(owner=st.sampled_from(("a", "b")), resign=st.booleans(), term=st.integers(0, 3))
    def lead(self, owner: str, resign: bool, term: int) -> None:
        role = f"role {self.clock_jumps}"
        if resign:
            self.both(lambda store: store.resign(role, owner, term))
        else:
            self.both(lambda store: store.lead(role, owner, lease=LEASE))

    @rule(limit=st.integers(0, 4))
    def expire(self, limit: int) -> None:
        late = self.both(lambda store: store.past_expiry(limit=limit))
        found = [job for job_id in late if (job := self.job(job_id)) is not None]
        self.apply([Transition.expired(job) for job in found])

    @rule(seconds=st.sampled_from((0.000001, 1, 30, 61, 4000)))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def they_hold_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        ids = [number(value) for value in range(1, 31)]
        self.both(lambda store: store.get(ids, tenant_id=None))
        self.both(lambda store: store.counts(tenant_id=None))
        self.both(lambda store: store.counts(tenant_id="one"))
        self.both(self.told)
        self.both(lambda store: store.read_records("space"))
        self.both(lambda store: store.find(ALL, limit=7))
        dead = JobFilter(tenant_id="one", statuses=frozenset({JobStatus.FAILED, JobStatus.QUEUED}))
        self.both(lambda store: store.find(dead, limit=3))
        mine = Visibility(tenant_id="one", owner="me", subjects=frozenset({"s1"}))
        own, own_dead = (msgspec.structs.replace(one, visible_to=mine) for one in (ALL, dead))
        self.both(lambda store: store.find(own, limit=3))
        self.both(lambda store: store.find(own_dead, limit=3))
        keys = [
            DedupeKey(KeyKind.JOB, tenant, kind, key)
            for tenant in TENANTS
            for kind in TYPES
            for key in ("k1", "k2")
        ]
        keys += [external_key(tenant, number(n)) for tenant in TENANTS for n in (101, 102, 103)]
        self.both(lambda store: store.held(keys))


async def _expired(store: JobStore) -> list[Run]:
    """How long a job had been due is told to whoever claims it, and need not be remembered."""
    late = await store.expired(limit=100)
    return [msgspec.structs.replace(run, waited_seconds=None) for run in late]


async def _get(store: JobStore, job_id: UUID) -> list[JobSnapshot | None]:
    return await store.get([job_id], tenant_id=None)


def _tokens() -> Callable[[], UUID]:
    numbers = count(1)
    return lambda: number(next(numbers))


def _settings(**options: Any) -> settings:
    """What fails is told as it was found: to make it smaller takes minutes on a server."""
    return settings(
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        **options,
    )


class SqliteAgrees(StoresAgree):
    async def opened(self) -> JobStore:
        self.folder = Path(mkdtemp(prefix="gantline-oracle-"))
        location = Location(self.folder / "gantline.db", sync="normal")
        store = SqliteStore(location, clock=self.clock, tokens=_tokens())
        await store.open()
        return store

    async def removed(self) -> None:
        await self.store.close()
        rmtree(self.folder)


class PostgresAgrees(StoresAgree):
    """The server draws its own tokens; each claim gives them the oracle's instead."""

    server: PostgresServer
    numbers_events_alike = False

    async def opened(self) -> JobStore:
        self.harness = PostgresHarness(self.server)
        self.harness.clock = self.clock
        return await self.harness.open()

    async def removed(self) -> None:
        await self.harness.close()

    async def claimed(
        self, store: JobStore, session: str, claim_id: UUID, requests: list[LaneRequest]
    ) -> list[Run]:
        if store is self.oracle:
            self._expected = await super().claimed(store, session, claim_id, requests)
            return self._expected
        assert isinstance(store, PostgresStore)
        # Order is promised within a second of the process's own time, the oracle's at once.
        store._parts.claims._floors._full_search_at = 0.0
        started = await super().claimed(store, session, claim_id, requests)
        tokens = {run.job.job_id: run.token for run in self._expected}
        renamed = [msgspec.structs.replace(run, token=tokens[run.job.job_id]) for run in started]
        rows = [(run.token, run.job.job_id) for run in renamed]
        await store.calls.run(lambda sql: sql.each(_RENAME, rows))
        return renamed

    async def told(self, store: JobStore) -> list[Any]:
        """Numbers come from a sequencer here, in the order in which rows were written."""
        await store.sequence(limit=1000)
        entries = [event.entry for event in await store.events(after=0, limit=1000)]
        return sorted(entries, key=lambda entry: (entry.job_id, entry.version))


class RedisAgrees(StoresAgree):
    """A claim is handed a token for each run that it may start; those that it used are counted."""

    server: RedisServer

    async def opened(self) -> JobStore:
        self.started = 0
        self.harness = RedisHarness(self.server)
        self.harness.clock = self.clock
        return await self.harness.open(tokens=self._next_tokens)

    def _next_tokens(self, most: int) -> bytes:
        return b"".join(number(self.started + n).bytes for n in range(1, most + 1))

    async def removed(self) -> None:
        await self.harness.close()

    async def claimed(
        self, store: JobStore, session: str, claim_id: UUID, requests: list[LaneRequest]
    ) -> list[Run]:
        runs = await super().claimed(store, session, claim_id, requests)
        if store is not self.oracle:
            self.started = max([self.started, *(run.token.int for run in runs)])
        return runs


_RENAME = "UPDATE gantline.lease SET token = %s WHERE job_id = %s"


def test_sqlite_agrees_with_the_oracle() -> None:
    run_state_machine_as_test(
        SqliteAgrees,
        settings=_settings(derandomize=True, max_examples=60, stateful_step_count=40),
    )


def test_postgres_agrees_with_the_oracle(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresAgrees, "server", postgres, raising=False)
    run_state_machine_as_test(
        PostgresAgrees,
        settings=_settings(derandomize=True, max_examples=15, stateful_step_count=40),
    )


def test_redis_agrees_with_the_oracle(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisAgrees, "server", redis, raising=False)
    run_state_machine_as_test(
        RedisAgrees,
        settings=_settings(derandomize=True, max_examples=30, stateful_step_count=40),
    )


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_redis_agrees_with_the_oracle_at_length(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisAgrees, "server", redis, raising=False)
    run_state_machine_as_test(RedisAgrees, settings=_at_length())


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_sqlite_agrees_with_the_oracle_at_length() -> None:
    """New examples every time; `GANTLINE_EXAMPLES` says how many."""
    run_state_machine_as_test(SqliteAgrees, settings=_at_length())


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_postgres_agrees_with_the_oracle_at_length(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresAgrees, "server", postgres, raising=False)
    run_state_machine_as_test(PostgresAgrees, settings=_at_length())


def _at_length() -> settings:
    examples = int(os.environ.get("GANTLINE_EXAMPLES", "1000"))
    return _settings(max_examples=examples, stateful_step_count=60)
