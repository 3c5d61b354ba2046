"""Races: two handles at once, started together, many times over. One wins, and all agree who."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any
from uuid import uuid4

from gantline.contract.outcome import LeaseLost, Success
from gantline.contract.results import Applied, Conflict, Duplicate, Stale
from gantline.contract.status import Event, JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.manager.manager import Ending
from gantline.testing.conformance.bench import HOUR, LEASE, PERMANENT, Bench
from gantline.testing.conformance.rule import rule
from gantline.testing.factories import lane_requests, make_new
from gantline.testing.faults import Call, intercepted

_ROUNDS = 20


async def together(*racers: Awaitable[Any]) -> list[Any]:
    """Start all racers at one barrier."""
    barrier = asyncio.Barrier(len(racers))

    async def run(racer: Awaitable[Any]) -> Any:
        await barrier.wait()
        return await racer

    return await asyncio.gather(*(run(racer) for racer in racers))


@rule
async def of_two_claims_each_job_goes_to_one(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        await bench.submit_many(5)
        first, second = await together(
            bench.claim(limit=4, session="worker-1"),
            other.claim(limit=4, session="worker-2"),
        )
        taken = Counter(run.job.job_id for run in first + second)
        assert len(first) <= 4
        assert len(second) <= 4
        assert set(taken.values()) == {1}
        rest = await bench.claim()
        assert len(taken) + len(rest) == 5
        for run in [*first, *second, *rest]:
            await bench.finish(run)


@rule
async def of_finish_and_reap_one_wins(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        run = await bench.start()
        await bench.let_leases_expire()
        settled, reaped = await together(bench.settle(run, Success()), other.reap())
        won_by_worker = settled.accepted
        assert won_by_worker == (reaped.requeued == 0)
        job = await bench.snapshot(run.job.job_id)
        assert job.status is (JobStatus.COMPLETED if won_by_worker else JobStatus.QUEUED)
        assert len(await bench.store.history(run.job.job_id, tenant_id=None)) == 1
        if not won_by_worker:
            await bench.cancel(run.job.job_id)


@rule
async def a_reaper_that_read_before_the_finish_writes_nothing(bench: Bench) -> None:
    """The same race, forced: the finish happens exactly between the reaper's two calls."""
    run = await bench.start()
    await bench.let_leases_expire()

    async def around(verb: str, call: Call) -> Any:
        answer = await call()
        if verb == "expired" and answer:
            await bench.finish(run)
        return answer

    slow = bench.over(intercepted(bench.store, around))
    reaped = await slow.reap()
    assert (reaped.requeued, reaped.skipped) == (0, 1)
    assert await bench.status(run.job.job_id) is JobStatus.COMPLETED


@rule
async def of_cancel_and_finish_the_answers_agree_with_the_job(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        run = await bench.start()
        job_id = run.job.job_id
        settled, acted = await together(
            bench.settle(run, Success()),
            other.manager.cancel([job_id], tenant_id=None, actor="op"),
        )
        assert settled.accepted
        assert await bench.status(job_id) is JobStatus.COMPLETED
        events = [row.event for row in await bench.store.history(job_id, tenant_id=None)]
        was_asked = hasattr(acted[0], "changed") and acted[0].changed
        assert events == ([Event.CANCEL_REQUESTED] if was_asked else []) + [Event.COMPLETED]


@rule
async def of_cancel_and_claim_the_answers_agree_with_the_job(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        job_id = await bench.submit()
        runs, acted = await together(
            bench.claim(), other.manager.cancel([job_id], tenant_id=None, actor="op")
        )
        job = await bench.snapshot(job_id)
        if runs:
            assert acted[0].status is JobStatus.RUNNING
            assert job.run is not None
            assert job.run.cancel_requested
            await bench.finish(runs[0])
        else:
            assert acted[0].status is job.status is JobStatus.CANCELLED


@rule
async def of_two_redrives_and_a_claim_the_job_runs_once(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        job_id, run = await bench.bring_to(JobStatus.FAILED)
        answers = await together(
            bench.manager.redrive([job_id], tenant_id=None, actor="a"),
            other.manager.redrive([job_id], tenant_id=None, actor="b"),
            other.claim(session="worker-2"),
        )
        (again,) = answers[2] + await bench.claim()
        assert again.fence == run.fence + 1
        rows = await bench.store.history(job_id, tenant_id=None)
        assert [row.event for row in rows] == [Event.FAILED, Event.REDRIVEN]
        await bench.finish(again)


@rule
async def of_two_submits_with_one_key_one_job_is_made(bench: Bench) -> None:
    other = await bench.another()
    for attempt in range(_ROUNDS):
        key = f"key-{attempt}"
        pair = [make_new(attempt, idempotency_key=key) for _ in range(2)]
        clash = make_new("clash", idempotency_key=key)
        answers = await together(
            bench.store.insert([pair[0]]),
            other.store.insert([pair[1]]),
            other.store.insert([clash]),
        )
        kinds = Counter(type(answer[0]) for answer in answers)
        assert kinds[Applied] == 1
        assert kinds in (
            Counter({Applied: 1, Duplicate: 1, Conflict: 1}),
            Counter({Applied: 1, Conflict: 2}),
        )
    assert (await bench.recount())["Queued"] == _ROUNDS


@rule
async def of_two_submits_with_one_key_and_other_requests_one_job_is_made(bench: Bench) -> None:
    """One of the two keys is free for each of them; the other is not."""
    other = await bench.another()
    for attempt in range(_ROUNDS):
        pair = [
            make_new(
                attempt,
                idempotency_key=f"key-{attempt}",
                request_key=DedupeKey(KeyKind.REQUEST, "default", name, "key", b"", HOUR),
            )
            for name in (f"first-{attempt}", f"second-{attempt}")
        ]
        answers = await together(bench.store.insert(pair[:1]), other.store.insert(pair[1:]))
        assert Counter(type(answer[0]) for answer in answers) == {Applied: 1, Duplicate: 1}
    assert (await bench.recount())["Queued"] == _ROUNDS


@rule
async def of_two_submits_with_one_id_one_job_is_made(bench: Bench) -> None:
    other = await bench.another()
    for attempt in range(_ROUNDS):
        new = make_new(attempt)
        answers = await together(bench.store.insert([new]), other.store.insert([new]))
        assert Counter(type(answer[0]) for answer in answers) == {Applied: 1, Duplicate: 1}


@rule
async def of_renew_and_reap_one_wins(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        run = await bench.start()
        await bench.let_leases_expire()
        renewal, reaped = await together(
            bench.store.renew(run.session, [run.ref], lease=LEASE), other.reap()
        )
        assert bool(renewal.lost) == (reaped.requeued == 1)
        if renewal.lost:
            await bench.cancel(run.job.job_id)
        else:
            await bench.finish(run)


@rule
async def of_many_finishes_of_one_run_one_is_written(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        run = await bench.start()
        settled = await together(bench.settle(run, Success()), other.settle(run, PERMANENT))
        assert sorted(answer.accepted for answer in settled) == [False, True]
        assert len(await bench.store.history(run.job.job_id, tenant_id=None)) == 1


@rule
async def one_claim_id_used_at_once_starts_each_job_once(bench: Bench) -> None:
    other = await bench.another()
    for _ in range(_ROUNDS):
        await bench.submit_many(3)
        claim_id = uuid4()
        requests = lane_requests(limit=2)
        await bench.register("w")
        first, second = await together(
            bench.store.claim("w", claim_id, requests, lease=LEASE),
            other.store.claim("w", claim_id, requests, lease=LEASE),
        )
        assert {run.ref for run in first} == {run.ref for run in second}
        for run in [*first, *await bench.claim()]:
            await bench.finish(run)


@rule
async def many_sessions_drain_a_queue_without_a_double(bench: Bench) -> None:
    """Sessions are abandoned at random; what they held is reaped and run again by others."""
    handles = [bench, await bench.another(), await bench.another()]
    ids = await bench.submit_many(90)
    accepted: Counter[Any] = Counter()

    async def work(handle: Bench, session: str) -> None:
        turn = 0
        while runs := (
            await handle.claim(limit=5, session=session)
            or await handle.claim(suspects=(5, 1), session=session)
        ):
            turn += 1
            if turn % 4 == 0:
                continue  # this session forgets what it claimed
            for settled in await handle.manager.settle([Ending(run, Success()) for run in runs]):
                accepted[settled.transition.job_id] += settled.accepted

    for _ in range(40):
        await asyncio.gather(*(work(handle, f"worker-{n}") for n, handle in enumerate(handles * 2)))
        await bench.reap_expired()
        bench.clock.advance(HOUR)
    jobs = await bench.store.get(ids, tenant_id=None)
    assert all(job and job.status.is_terminal for job in jobs)
    assert set(accepted.values()) == {1}
    completed = [job for job in jobs if job and job.status is JobStatus.COMPLETED]
    assert len(completed) == len(accepted)


@rule
async def a_zombie_that_settles_after_the_takeover_is_refused(bench: Bench) -> None:
    other = await bench.another()
    zombie = await bench.start()
    await other.reap_expired()
    bench.clock.advance(HOUR)
    heir = (await other.claim(session="worker-2"))[0]
    settled = await together(
        bench.settle(zombie, Success(result=b'"zombie"')),
        other.settle(heir, Success(result=b'"heir"')),
    )
    assert [answer.accepted for answer in settled] == [False, True]
    assert settled[0].result == Stale()
    job = await bench.snapshot(heir.job.job_id)
    assert job.last is not None
    assert job.last.result == b'"heir"'


@rule
async def two_reapers_over_one_page_count_a_crash_once(bench: Bench) -> None:
    other = await bench.another()
    run = await bench.start()
    await bench.let_leases_expire()
    late = await bench.store.expired(limit=1)
    answers = await together(
        bench.manager.settle([Ending(late[0], LeaseLost())]),
        other.manager.settle([Ending(late[0], LeaseLost())]),
    )
    assert all(answer[0].accepted for answer in answers)  # both get the same change
    job = await bench.snapshot(run.job.job_id)
    assert (job.crashes, job.version) == (1, 3)
