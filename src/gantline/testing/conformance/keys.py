"""Rules for dedupe keys: one job a key, for exactly as long as was promised."""

from datetime import timedelta

from gantline.contract.errors import SubmitConflict
from gantline.contract.outcome import Success
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.query import PruneRule
from gantline.contract.results import Applied, Conflict, Duplicate
from gantline.contract.status import JobStatus, Reason
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import StateGuard, Transition
from gantline.testing.conformance.bench import HOUR, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import make_new

KEY = "doc-7-v5"
DAY = timedelta(days=1)


@rule
async def the_same_key_and_payload_gives_the_existing_job(bench: Bench) -> None:
    first = await bench.submit({"a": 1}, idempotency_key=KEY)
    again = make_new({"a": 1}, idempotency_key=KEY)
    assert await bench.store.insert([again]) == [Duplicate(first, by=KeyKind.JOB)]
    assert await bench.store.get([again.job.job_id], tenant_id=None) == [None]


@rule
async def the_same_key_with_another_payload_is_a_conflict(bench: Bench) -> None:
    await bench.submit({"a": 1}, idempotency_key=KEY)
    other = make_new({"a": 2}, idempotency_key=KEY)
    newer = make_new({"a": 1}, idempotency_key=KEY, payload_version=2)
    assert await bench.store.insert([other, newer]) == [Conflict(by=KeyKind.JOB)] * 2


@rule
async def keys_of_other_tenants_and_types_never_meet(bench: Bench) -> None:
    jobs = [
        make_new(1, idempotency_key=KEY),
        make_new(2, idempotency_key=KEY, tenant_id="other"),
        make_new(3, idempotency_key=KEY, job_type="other"),
        make_new(4),
        make_new(5),
    ]
    assert await bench.store.insert(jobs) == [Applied(1)] * 5


@rule
async def keys_of_other_tenants_and_types_are_not_found_either(bench: Bench) -> None:
    """They were taken by earlier calls."""
    for number, (tenant, kind) in enumerate(
        (("default", "test"), ("other", "test"), ("default", "other"))
    ):
        key = DedupeKey(KeyKind.REQUEST, tenant, kind, KEY, b"body", DAY)
        new = make_new(
            number, idempotency_key=KEY, request_key=key, tenant_id=tenant, job_type=kind
        )
        assert await bench.store.insert([new]) == [Applied(1)]


@rule
async def of_two_in_one_call_the_first_wins(bench: Bench) -> None:
    first, same, other = (make_new(n, idempotency_key=KEY) for n in (1, 1, 2))
    answers = await bench.store.insert([first, same, other])
    assert answers == [
        Applied(1),
        Duplicate(first.job.job_id, by=KeyKind.JOB),
        Conflict(by=KeyKind.JOB),
    ]


@rule_for((JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.COMPLETED))
async def a_live_or_completed_job_holds_its_key(bench: Bench, status: JobStatus) -> None:
    job_id, _ = await bench.bring_to(status, idempotency_key=KEY)
    again = make_new(None, idempotency_key=KEY)
    assert await bench.store.insert([again]) == [Duplicate(job_id, by=KeyKind.JOB)]


@rule_for((JobStatus.FAILED, JobStatus.POISONED, JobStatus.CANCELLED))
async def a_job_that_did_not_complete_frees_its_key(bench: Bench, status: JobStatus) -> None:
    await bench.bring_to(status, idempotency_key=KEY)
    assert await bench.store.insert([make_new("new", idempotency_key=KEY)]) == [Applied(1)]


@rule
async def a_retried_job_keeps_its_key(bench: Bench) -> None:
    run = await bench.start(idempotency_key=KEY)
    await bench.finish(run, RETRYABLE)
    clash = make_new("other", idempotency_key=KEY)
    assert await bench.store.insert([clash]) == [Conflict(by=KeyKind.JOB)]


@rule
async def a_completed_job_holds_its_key_for_seven_days(bench: Bench) -> None:
    await bench.bring_to(JobStatus.COMPLETED, idempotency_key=KEY)
    other = make_new("other", idempotency_key=KEY)
    bench.clock.advance(7 * DAY - timedelta(seconds=1))
    assert await bench.store.insert([other]) == [Conflict(by=KeyKind.JOB)]
    bench.clock.advance(1)
    assert await bench.store.insert([other]) == [Applied(1)]
    again = make_new("other", idempotency_key=KEY)
    assert await bench.store.insert([again]) == [Duplicate(other.job.job_id, by=KeyKind.JOB)]


@rule
async def a_redrive_takes_the_key_again(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key=KEY)
    await bench.redrive(job_id)
    again = make_new(None, idempotency_key=KEY)
    assert await bench.store.insert([again]) == [Duplicate(job_id, by=KeyKind.JOB)]


@rule
async def a_redrive_is_refused_while_a_newer_job_has_the_key(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key=KEY)
    newer = await bench.submit("newer", idempotency_key=KEY)
    answer = (await bench.manager.redrive([job_id], tenant_id=None, actor="op"))[0]
    assert isinstance(answer, SubmitConflict)
    assert await bench.status(job_id) is JobStatus.FAILED
    assert await bench.status(newer) is JobStatus.QUEUED


@rule
async def two_redrives_of_one_key_in_one_call_give_it_to_one(bench: Bench) -> None:
    first, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key=KEY)
    second, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key=KEY)
    jobs = [await bench.snapshot(job_id) for job_id in (first, second)]
    answers = await bench.store.apply([Transition.redriven(job, actor="op") for job in jobs])
    assert isinstance(answers[0], Applied)
    assert answers[1] == Conflict(by=KeyKind.JOB)


@rule
async def an_old_job_cannot_free_the_key_of_a_newer_one(bench: Bench) -> None:
    old, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key=KEY)
    newer = await bench.submit("newer", idempotency_key=KEY)
    job = await bench.snapshot(old)
    await bench.store.delete([(old, StateGuard(job.status, job.job.tenant_id, job.version))])
    again = make_new("newer", idempotency_key=KEY)
    assert await bench.store.insert([again]) == [Duplicate(newer, by=KeyKind.JOB)]


@rule
async def deleting_a_completed_job_frees_its_key(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.COMPLETED, idempotency_key=KEY)
    job = await bench.snapshot(job_id)
    await bench.store.delete([(job_id, StateGuard(job.status, job.job.tenant_id, job.version))])
    assert await bench.store.insert([make_new("new", idempotency_key=KEY)]) == [Applied(1)]


@rule
async def pruning_a_completed_job_keeps_its_key_as_promised(bench: Bench) -> None:
    job_id, _ = await bench.bring_to(JobStatus.COMPLETED, idempotency_key=KEY)
    bench.clock.advance(HOUR)
    rule_ = PruneRule(JobStatus.COMPLETED, bench.clock.now())
    assert (await bench.store.prune([rule_], limit=10)).jobs == 1
    other = make_new("other", idempotency_key=KEY)
    same = make_new(None, idempotency_key=KEY)
    answers = await bench.store.insert([other, same])
    assert answers == [Conflict(by=KeyKind.JOB), Duplicate(job_id, by=KeyKind.JOB)]
    bench.clock.advance(7 * DAY)
    assert (await bench.store.prune([], limit=10)).keys == 1


@rule_for((False, True))
async def pruning_leaves_the_key_of_a_live_job(bench: Bench, is_redriven: bool) -> None:
    if is_redriven:
        job_id, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key=KEY)
        await bench.redrive(job_id)
    else:
        job_id = await bench.submit(idempotency_key=KEY)
    bench.clock.advance(100 * DAY)
    assert (await bench.store.prune([], limit=10)).keys == 0
    assert await bench.store.held([_job_key()]) == [job_id]


@rule
async def a_request_key_is_held_for_its_own_time_whatever_the_job_does(bench: Bench) -> None:
    key = DedupeKey(KeyKind.REQUEST, "default", "user-1", "abc", b"body", DAY)
    new = make_new(1, request_key=key)
    assert await bench.store.insert([new]) == [Applied(1)]
    await bench.finish((await bench.claim())[0], PERMANENT)
    again = make_new(1, request_key=key)
    duplicate = Duplicate(new.job.job_id, by=KeyKind.REQUEST)
    assert await bench.store.insert([again]) == [duplicate]
    other = DedupeKey(KeyKind.REQUEST, "default", "user-1", "abc", b"other body", DAY)
    clash = make_new(1, request_key=other)
    assert await bench.store.insert([clash]) == [Conflict(by=KeyKind.REQUEST)]
    bench.clock.advance(DAY)
    assert await bench.store.insert([again]) == [Applied(1)]


@rule
async def a_request_key_is_found_by_its_job_id_after_the_job_is_gone(bench: Bench) -> None:
    key = DedupeKey(KeyKind.REQUEST, "default", "user-1", "abc", b"body", DAY)
    new, unkeyed = make_new(1, request_key=key), make_new(2, idempotency_key=KEY)
    assert await bench.store.insert([new, unkeyed]) == [Applied(1), Applied(1)]
    ids = [unkeyed.job.job_id, new.job.job_id]
    stored = DedupeKey(KeyKind.REQUEST, "default", "user-1", "abc", b"body")
    assert await bench.store.request_keys(ids) == [None, stored]
    for run in await bench.claim():
        await bench.finish(run)
    bench.clock.advance(HOUR)
    rule_ = PruneRule(JobStatus.COMPLETED, bench.clock.now())
    assert (await bench.store.prune([rule_], limit=10)).jobs == 2
    assert await bench.store.request_keys(ids) == [None, stored]
    bench.clock.advance(DAY)
    assert await bench.store.request_keys(ids) == [None, None]


@rule
async def a_repeated_request_is_found_by_its_own_key_not_the_jobs_key(bench: Bench) -> None:
    """Its job failed and freed the job's key, and another job took that."""
    key = DedupeKey(KeyKind.REQUEST, "default", "user-1", "abc", b"body", DAY)
    first = make_new(1, idempotency_key=KEY, request_key=key)
    assert await bench.store.insert([first]) == [Applied(1)]
    await bench.finish((await bench.claim())[0], PERMANENT)
    await bench.submit(2, idempotency_key=KEY)
    again = make_new(1, idempotency_key=KEY, request_key=key)
    duplicate = Duplicate(first.job.job_id, by=KeyKind.REQUEST)
    assert await bench.store.insert([again]) == [duplicate]
    other = DedupeKey(KeyKind.REQUEST, "default", "user-1", "abc", b"other body", DAY)
    clash = make_new(3, idempotency_key=KEY, request_key=other)
    assert await bench.store.insert([clash]) == [Conflict(by=KeyKind.REQUEST)]


@rule
async def a_request_key_of_the_same_words_is_another_key(bench: Bench) -> None:
    key = DedupeKey(KeyKind.REQUEST, "default", "test", KEY, b"body", DAY)
    new = make_new(1, idempotency_key=KEY, request_key=key)
    assert await bench.store.insert([new]) == [Applied(1)]
    assert await bench.store.held([key, _job_key()]) == [new.job.job_id] * 2
    await bench.finish((await bench.claim())[0], PERMANENT)
    assert await bench.store.held([key, _job_key()]) == [new.job.job_id, None]


@rule
async def a_redrive_takes_a_key_whose_time_is_over(bench: Bench) -> None:
    """That another type holds a key of the same words is nothing to it."""
    old, _ = await bench.bring_to(JobStatus.FAILED, idempotency_key=KEY)
    await bench.bring_to(JobStatus.COMPLETED, idempotency_key=KEY)
    await bench.submit(idempotency_key=KEY, job_type="other")
    bench.clock.advance(7 * DAY - timedelta(seconds=1))
    (refused,) = await bench.manager.redrive([old], tenant_id=None, actor="op")
    assert isinstance(refused, SubmitConflict)
    bench.clock.advance(1)
    await bench.redrive(old)
    assert await bench.store.held([_job_key()]) == [old]


@rule
async def a_refused_job_takes_none_of_its_keys(bench: Bench) -> None:
    await bench.submit(1, idempotency_key=KEY)
    key = DedupeKey(KeyKind.REQUEST, "default", "user-1", "abc", b"body", DAY)
    refused = make_new(2, idempotency_key=KEY, request_key=key)
    assert await bench.store.insert([refused]) == [Conflict(by=KeyKind.JOB)]
    assert await bench.store.held([key]) == [None]


@rule
async def in_one_call_the_key_freed_and_the_follow_up_that_wants_it_do_not_mix(
    bench: Bench,
) -> None:
    """Whatever the order inside the call, never two live jobs with one key."""
    await bench.submit("a", idempotency_key=KEY)
    holder = (await bench.claim())[0]
    other = await bench.start("b")
    follow_up = make_new("c", idempotency_key=KEY)
    failed = Transition.failed(holder, PERMANENT.error, Reason.PERMANENT_ERROR)
    completed = Transition.completed(
        other, Success(follow_ups=(follow_up,)), hold_key=DEFAULT_POLICY.hold_key
    )
    await bench.store.apply([failed, completed])
    held = (await bench.store.held([_job_key()]))[0]
    stored = (await bench.store.get([follow_up.job.job_id], tenant_id=None))[0]
    assert held == (follow_up.job.job_id if stored else None)


def _job_key() -> DedupeKey:
    return DedupeKey(KeyKind.JOB, "default", "test", KEY)
