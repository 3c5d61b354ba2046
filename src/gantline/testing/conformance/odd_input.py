"""Rules for odd input: what no store can keep is found nowhere, no number is too large to ask."""

from datetime import UTC, datetime
from uuid import uuid4

from gantline.contract.outcome import Success
from gantline.contract.query import Cursor, JobFilter, PruneRule, Visibility
from gantline.contract.records import RecordWrite
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.testing.conformance.bench import Bench
from gantline.testing.conformance.rule import rule, rule_for

# PostgreSQL's text refuses the one, UTF-8 itself the other.
_IMPOSSIBLE = {"nul": "a\x00b", "surrogate": "a\ud800b"}
_NOTHING = {"minus_one": -1, "far_below_zero": -(2**70)}
_MANY = {"32_bits": 2**31, "64_bits": 2**63, "more": 2**70}
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


@rule_for(_IMPOSSIBLE)
async def no_job_has_a_text_that_cannot_be_kept(bench: Bench, case: str) -> None:
    text = _IMPOSSIBLE[case]
    job_id, _ = await bench.bring_to(JobStatus.FAILED)
    filters = [
        JobFilter(tenant_id=text),
        JobFilter(subject_id=text),
        JobFilter(created_by=text),
        JobFilter(correlation_id=text),
        JobFilter(job_types=frozenset({text})),
        JobFilter(queues=frozenset({text}), statuses=frozenset(JobStatus)),
        JobFilter(reasons=frozenset({text})),
        JobFilter(error_codes=frozenset({text})),
        JobFilter(min_attempts=2**80),
        JobFilter(visible_to=Visibility(tenant_id=text)),
        JobFilter(visible_to=Visibility(job_types=frozenset({text}))),
        JobFilter(visible_to=Visibility(owner=text)),
        JobFilter(visible_to=Visibility(owner="", subjects=frozenset({text}))),
    ]
    for job_filter in filters:
        page = await bench.store.find(job_filter, limit=10)
        assert (page.items, page.next) == ((), None), job_filter
    assert await bench.store.get([job_id], tenant_id=text) == [None]
    assert await bench.store.history(job_id, tenant_id=text) == []
    assert await bench.store.counts(tenant_id=text) == []
    assert await bench.store.dead_counts(tenant_id=text) == []
    assert await bench.store.held([DedupeKey(KeyKind.JOB, text, text, text)]) == [None]


@rule_for(_IMPOSSIBLE)
async def a_choice_that_is_impossible_leaves_the_others(bench: Bench, case: str) -> None:
    text = _IMPOSSIBLE[case]
    job_id = await bench.submit(subject_id="subject")
    job_filter = JobFilter(
        job_types=frozenset({"test", text}),
        queues=frozenset({"default", text}),
        visible_to=Visibility(owner=text, subjects=frozenset({"subject", text})),
    )
    page = await bench.store.find(job_filter, limit=10)
    assert [job.job.job_id for job in page.items] == [job_id]


@rule
async def a_job_without_an_outcome_has_no_reason_and_no_error(bench: Bench) -> None:
    await bench.submit()
    nothing = frozenset({""})
    for job_filter in (JobFilter(reasons=nothing), JobFilter(error_codes=nothing)):
        page = await bench.store.find(job_filter, limit=10)
        assert (page.items, page.next) == ((), None), job_filter


@rule_for(_IMPOSSIBLE)
async def no_record_has_a_name_that_cannot_be_kept(bench: Bench, case: str) -> None:
    text, read = _IMPOSSIBLE[case], bench.store.read_records
    await bench.store.write_records([RecordWrite("a", key, b"1") for key in ("a", "b")])
    assert await read(text) == []
    assert await read("a", prefix=text) == []
    assert [record.key for record in await read("a", after=text)] == ["b"]


@rule
async def a_job_completes_whatever_is_said_of_its_result(bench: Bench) -> None:
    run = await bench.start()
    await bench.finish(run, Success(result_omitted="a\x00b \ud800" + "x" * 10_000))
    job = await bench.snapshot(run.job.job_id)
    assert job.last is not None
    assert job.last.result_omitted is not None
    assert job.last.result_omitted.startswith("a\ufffdb \ufffd")
    assert len(job.last.result_omitted) <= 256


async def _fill(bench: Bench) -> None:
    """One of everything that is read or removed up to a limit."""
    await bench.bring_to(JobStatus.FAILED)
    await bench.start()
    await bench.let_leases_expire()
    await bench.store.write_records([RecordWrite("a", "a", b"1")])


@rule_for(_NOTHING)
async def a_limit_below_zero_gives_nothing(bench: Bench, case: str) -> None:
    limit = _NOTHING[case]
    await _fill(bench)
    page = await bench.store.find(JobFilter(), limit=limit)
    assert (page.items, page.next) == ((), None)
    assert await bench.store.expired(limit=limit) == []
    assert await bench.store.read_records("a", limit=limit) == []
    assert await bench.store.sequence(limit=limit) == 0
    while await bench.store.sequence(limit=10):
        pass
    assert await bench.store.events(after=0, limit=limit) == []
    pruned = await bench.store.prune([PruneRule(JobStatus.FAILED, _LAST)], limit=limit)
    assert (pruned.jobs, pruned.keys, pruned.records) == (0, 0, 0)


@rule_for(_MANY)
async def a_limit_beyond_all_rows_gives_them_all(bench: Bench, case: str) -> None:
    limit = _MANY[case]
    await _fill(bench)
    page = await bench.store.find(JobFilter(), limit=limit)
    assert (len(page.items), page.next) == (2, None)
    assert len(await bench.store.expired(limit=limit)) == 1
    assert len(await bench.store.read_records("a", limit=limit)) == 1
    while await bench.store.sequence(limit=limit):
        pass
    assert len(await bench.store.events(after=0, limit=limit)) == 1
    pruned = await bench.store.prune([PruneRule(JobStatus.FAILED, _LAST)], limit=limit)
    assert pruned.jobs == 1


@rule_for(_MANY)
async def after_the_last_number_there_is_nothing(bench: Bench, case: str) -> None:
    number = _MANY[case]
    await _fill(bench)
    while await bench.store.sequence(limit=10):
        pass
    assert await bench.store.events(after=number, limit=10) == []
    assert len(await bench.store.events(after=-number, limit=10)) == 1
    await bench.store.resign("role", "owner", number)
    rules = [PruneRule(JobStatus.FAILED, _LAST)]
    pruned = await bench.store.prune(rules, limit=10, keep_events_after=-number)
    assert pruned.jobs == 0
    pruned = await bench.store.prune(rules, limit=10, keep_events_after=number)
    assert pruned.jobs == 1


@rule
async def the_first_and_the_last_instant_can_be_asked_for(bench: Bench) -> None:
    job_id = await bench.submit()
    everything = [
        JobFilter(created_from=_FIRST, created_before=_LAST),
        JobFilter(created_from=_FIRST, statuses=frozenset(JobStatus)),
    ]
    for job_filter in everything:
        page = await bench.store.find(job_filter, limit=10, after=Cursor(_LAST, uuid4()))
        assert [job.job.job_id for job in page.items] == [job_id]
    for nothing in (JobFilter(created_from=_LAST), JobFilter(created_before=_FIRST)):
        assert (await bench.store.find(nothing, limit=10)).items == ()
    rest = await bench.store.find(JobFilter(), limit=10, after=Cursor(_FIRST, uuid4()))
    assert rest.items == ()
    assert (await bench.store.prune([PruneRule(JobStatus.FAILED, _FIRST)], limit=1)).jobs == 0
