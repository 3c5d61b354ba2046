"""The suite is worth what it catches: a PostgreSQL function without one of its guards fails it."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from psycopg import AsyncConnection

from gantline.contract.store import JobStore
from gantline.stores.postgres import apply
from gantline.testing.conformance import Bench, Rule, all_rules
from tests.harness import PostgresHarness
from tests.postgres.stepping import DEFINITION
from tests.servers.postgres import PostgresServer
from tests.test_broken_stores import broken_rules

pytestmark = pytest.mark.wide

# A function, what is taken out of it, what stands there instead, and the topics that must catch it.
BREAKAGES = {
    "the token is not compared": (
        "settle_runs",
        "AND lease.token = t.token",
        "",
        ("fencing", "states"),
    ),
    "a cancel request is not looked at again": (
        "settle_runs",
        "AND NOT (t.unless_cancelled AND lease.cancel_requested)",
        "",
        ("applying", "races"),
    ),
    "the end of a lease is not looked at again": (
        "settle_runs",
        "AND (NOT t.only_expired OR lease.until <= v_now)",
        "",
        ("leases", "maintenance", "races", "clocks"),
    ),
    "a claim forgets its id": (
        "claim_jobs",
        "lease.claim_id = p_claim",
        "false",
        ("answers", "claiming"),
    ),
    "the limit of a type is not looked at": (
        "claim_jobs",
        "LIMIT least(w.most, w.at_most)",
        "LIMIT w.most",
        ("claiming",),
    ),
    "the limit of a type begins again with every priority": (
        "claim_jobs",
        "PARTITION BY w.request, w.lane ORDER BY w.rank",
        "PARTITION BY w.request, w.lane, w.rank ORDER BY w.rank",
        ("claiming",),
    ),
    "suspects hide others before they are due": (
        "due_suspects",
        "WHERE head.run_at <= v_now",
        "",
        ("suspects",),
    ),
    "keys are not taken": (
        "insert_jobs",
        "IF v_is_keyed THEN",
        "IF false THEN",
        ("keys", "inserting"),
    ),
    "late commits are not numbered": (
        "sequence_events",
        "v_all := v_late || v_new",
        "v_all := v_new",
        ("events",),
    ),
}


class BrokenHarness(PostgresHarness):
    """Puts the broken function into its own schema."""

    def __init__(self, server: PostgresServer, function: str, old: str, new: str) -> None:
        super().__init__(server)
        self._breakage = (function, old, new)
        self._is_broken = False

    async def open(self, *, before_commit: Callable[[], None] | None = None) -> JobStore:
        store = await super().open(before_commit=before_commit)
        if not self._is_broken:
            await self._break()
            self._is_broken = True
        return store

    async def _break(self) -> None:
        function, old, new = self._breakage
        async with await AsyncConnection.connect(
            self.location.conninfo, autocommit=True
        ) as connection:
            cursor = await connection.execute(DEFINITION, (self.location.schema, function))
            ((text,),) = await cursor.fetchall()
            old = old.replace("gantline.", f"{self.location.schema}.")
            assert old in text, f"{function} no longer says {old!r}: name what it says now"
            await connection.execute(text.replace(old, new).encode())


async def claims_pass_each_other(harness: PostgresHarness) -> None:
    """One claim is held just before its commit; another takes what is left, and does not wait."""
    is_armed, held, may_commit = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        if is_armed.is_set():
            held.set()
            may_commit.wait(10)

    bench = await Bench.on(harness)
    slow = bench.over(await harness.open(before_commit=hold))
    assert await slow.claim(session="slow") == []  # by which it has learnt all it needs before
    await bench.register("worker-1")
    await bench.submit_many(4)
    is_armed.set()
    claiming = asyncio.create_task(slow.claim(limit=2, session="slow"))
    try:
        await asyncio.to_thread(held.wait, 10)
        async with asyncio.timeout(2):
            runs = await bench.claim(limit=2)
    finally:
        may_commit.set()
        others = await claiming
    assert len({run.job.job_id for run in [*runs, *others]}) == 4


@pytest.mark.parametrize("breakage", BREAKAGES)
async def test_the_suite_catches(breakage: str, postgres: PostgresServer) -> None:
    function, old, new, topics = BREAKAGES[breakage]
    # Once by itself: if it cannot be made any more, that must not count as a catch.
    probe = BrokenHarness(postgres, function, old, new)
    await probe.open()
    await probe.close()
    rules = [rule for rule in all_rules() if rule.topic in topics]
    assert await is_caught(lambda: BrokenHarness(postgres, function, old, new), rules), (
        f"no rule of {topics} noticed that {breakage}"
    )


async def is_caught(make: Callable[[], PostgresHarness], rules: list[Rule]) -> bool:
    """Whether any rule fails; the others need not be seen."""
    for rule in rules:
        if await broken_rules(make, [rule]):
            return True
    return False


async def test_an_operator_s_write_without_its_guard_is_caught(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "refusal", lambda guard, **state: None)
    rules = [rule for rule in all_rules() if rule.topic == "states"]
    assert await is_caught(lambda: PostgresHarness(postgres), rules)


@pytest.mark.parametrize("instead", ["FOR UPDATE", ""], ids=["waiting", "locking nothing"])
async def test_a_claim_that_does_not_pass_over_what_others_hold_is_caught(
    instead: str, postgres: PostgresServer
) -> None:
    broken = BrokenHarness(postgres, "claim_jobs", "FOR UPDATE SKIP LOCKED", instead)
    with pytest.raises(TimeoutError):
        await claims_pass_each_other(broken)
    await broken.close()


async def test_the_sound_store_passes(postgres: PostgresServer) -> None:
    """The counter-check: what is caught above is the breakage, not the way it is made."""
    rules = [rule for rule in all_rules() if rule.topic in ("fencing", "races", "answers")]
    unbroken = ("settle_runs", "BEGIN", "BEGIN")
    assert await broken_rules(lambda: BrokenHarness(postgres, *unbroken), rules) == {}
    harness = BrokenHarness(postgres, *unbroken)
    await claims_pass_each_other(harness)
    await harness.close()
