"""Two verbs at once on real sessions: whatever the order of their statements, both are answered as
if one had come after the other; and each rule that the server keeps for it is needed."""

from collections.abc import AsyncIterator

import pytest

from gantline.stores.postgres import apply, dedupe, prune, settle
from gantline.testing.model.invariants import Broken
from tests.postgres.pairs import PAIRS
from tests.postgres.stepping import NotSerial, Pair, Stage, explore_pair, stage_on
from tests.servers.postgres import PostgresServer

# A server and a stage of their own for each would take longer than the tests.
pytestmark = pytest.mark.xdist_group("interleavings")

BY_NAME = {pair.name: pair for pair in PAIRS}
LONG = ("delete, redrive", "delete, delete", "prune, redrive", "prune, delete", "redrive, redrive")


@pytest.fixture
async def stage(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with stage_on(postgres, monkeypatch) as stage:
        yield stage


async def explore_all(stage: Stage, pairs: list[Pair]) -> None:
    for pair in pairs:
        found = await explore_pair(stage, pair)
        print(  # noqa: T201  # -s shows how much was explored
            f"{pair}: {found.states} states, {found.runs} runs, {found.ends} ends, "
            f"{len(found.outcomes)} outcomes, {found.waits} waits, {found.deadlocks} deadlocks"
        )
        assert found.deadlocks == 0
        assert found.ends >= 1


async def test_two_verbs_are_answered_as_if_one_came_after_the_other(stage: Stage) -> None:
    await explore_all(stage, [pair for pair in PAIRS if pair.name not in LONG])


@pytest.mark.wide
@pytest.mark.parametrize("name", LONG)
async def test_two_longer_verbs_are_too(stage: Stage, name: str) -> None:
    await explore_all(stage, [BY_NAME[name]])


@pytest.mark.wide
async def test_they_are_where_each_statement_commits_by_itself(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage_on(postgres, monkeypatch, held_commits=False) as stage:
        await explore_all(stage, [pair for pair in PAIRS if pair.name not in LONG])


@pytest.mark.wide
async def test_who_loses_patience_with_a_lock_has_done_all_or_nothing(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage_on(postgres, monkeypatch, patient=False) as stage:
        await explore_all(stage, [pair for pair in PAIRS if pair.name not in LONG])


async def test_claims_do_not_wait_for_each_other(stage: Stage) -> None:
    assert (await explore_pair(stage, BY_NAME["claim, claim"])).waits == 0


# -- each rule is needed ---------------------------------------------------------------------------

# A function of the server, what is taken out, what stands there instead, the pair that shows it.
BROKEN_FUNCTIONS = {
    "a run that retries is not compared": (
        "settle_runs",
        "AND lease.token = t.token",
        "",
        "retry of a lost run, of its heir",
    ),
    "a run that completes is not compared": (
        "complete_runs",
        "AND lease.token = t.token",
        "",
        "success of a lost run, of its heir",
    ),
    "a cancel request is not looked at again": (
        "settle_runs",
        "AND NOT (t.unless_cancelled AND lease.cancel_requested)",
        "",
        "retry, cancel",
    ),
    "the end of a lease is not looked at again": (
        "settle_runs",
        "AND (NOT t.only_expired OR lease.until <= v_now)",
        "",
        "renew, reap",
    ),
    "a claim forgets its id": (
        "claim_jobs",
        "lease.claim_id = p_claim",
        "false",
        "claim, the same claim",
    ),
    "keys are not taken": (
        "insert_jobs",
        "IF v_is_keyed THEN",
        "IF false THEN",
        "submit, submit of the same key",
    ),
    "a key in use is overwritten": (
        "take_keys",
        "WHERE held.until <= p_now",
        "",
        "submit, submit of the same key",
    ),
    "a failed job keeps its key": (
        "keep_or_free_keys",
        "held.kind = 'job' AND held.job_id = v_key.job_id",
        "false",
        "failure, submit of the same key",
    ),
}


@pytest.mark.parametrize("bug", BROKEN_FUNCTIONS)
async def test_a_broken_function_is_caught(stage: Stage, bug: str) -> None:
    function, old, new, pair = BROKEN_FUNCTIONS[bug]
    await stage.replace_in(function, old, new)
    with pytest.raises((NotSerial, Broken)) as caught:
        await explore_pair(stage, BY_NAME[pair])
    print(bug, caught.value, *getattr(caught.value, "__notes__", ()))  # noqa: T201  # -s shows them


# The same for statements that are not in functions.
BROKEN_STATEMENTS = {
    "a running job is read without a lock": (
        apply,
        "_RUNNING_HEADS",
        " FOR UPDATE OF lease",
        "",
        "success, cancel",
    ),
    "an ended job is read without a lock": (
        apply,
        "_ENDED_HEADS",
        " FOR UPDATE OF log",
        "",
        "redrive, redrive",
    ),
    "a queued job is read without a lock": (
        apply,
        "_QUEUED_HEADS",
        " FOR UPDATE OF ready",
        "",
        "claim, cancel",
    ),
    "a redrive takes a key from another": (
        dedupe,
        "_TAKE",
        "WHERE held.kind = 'once' OR held.job_id = excluded.job_id OR held.until <= %s",
        "WHERE %s > 0",
        "redrive, submit of the same key",
    ),
    "a run that was ended already is not recognised": (
        settle,
        "_EXPLAIN",
        "log.change_id = given.token",
        "false",
        "success, the same success",
    ),
    "retention does not lock what it removes": (
        prune,
        "_REMOVE_OLD",
        "FOR UPDATE SKIP LOCKED",
        "",
        "prune, redrive",
    ),
}


@pytest.mark.parametrize("bug", BROKEN_STATEMENTS)
async def test_a_broken_statement_is_caught(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    module, name, old, new, pair = BROKEN_STATEMENTS[bug]
    statement = getattr(module, name)
    assert old in statement, f"{name} no longer says {old!r}: name what it says now"
    monkeypatch.setattr(module, name, statement.replace(old, new))
    with pytest.raises((NotSerial, Broken)) as caught:
        await explore_pair(stage, BY_NAME[pair])
    print(bug, caught.value, *getattr(caught.value, "__notes__", ()))  # noqa: T201  # -s shows them
