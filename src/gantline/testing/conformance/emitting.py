"""Rules for what a run emits: it is part of the row of its end, exactly, and of no other."""

from gantline.contract.domain_event import Emitted, encode_emitted, read_emitted
from gantline.contract.outcome import Success
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict, Stale
from gantline.contract.snapshot import LogEntry
from gantline.contract.status import Event, JobStatus, Reason
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.transition import Transition
from gantline.testing.conformance.applying import completed
from gantline.testing.conformance.bench import HOUR, PERMANENT, RETRYABLE, Bench
from gantline.testing.conformance.events import read
from gantline.testing.conformance.rule import rule
from gantline.testing.factories import make_new


def emitted(*payloads: object) -> bytes:
    """Events of these payloads, and an entry for the audit trail."""
    events = [
        Emitted.of("ORDER_SHIPPED", "Order", "o/ü-1", one, is_audit=False) for one in payloads
    ]
    entry = Emitted.of("ORDER_SHIPPED", "Order", "o/ü-1", {"by": "me"}, is_audit=True)
    body = encode_emitted([*events, entry])
    assert body is not None
    return body


async def rows(bench: Bench) -> list[LogEntry]:
    """The rows of all jobs, as consumers read them."""
    return [event.entry for event in await read(bench)]


@rule
async def what_a_run_emits_comes_with_its_end(bench: Bench) -> None:
    run = await bench.start()
    body = emitted({"parcel": "p-\u00fc\u0000"}, [1, 2.5, None], "last")
    assert await bench.store.apply([completed(run, result=b"1", emitted=body)]) == [Applied(3)]
    (row,) = await rows(bench)
    assert (row.event, row.result, row.emitted) == (Event.COMPLETED, b"1", body)
    assert await bench.store.history(run.job.job_id, tenant_id=None) == [row]
    assert (await bench.snapshot(run.job.job_id)).last == row
    assert [one.is_audit for one in read_emitted(row.emitted)] == [False, False, False, True]


@rule
async def of_many_ends_at_once_each_has_its_own(bench: Bench) -> None:
    """Among those that emit nothing, in one call, in an order that a store may change."""
    ids = await bench.submit_many(9)
    bodies = {job_id: emitted(n) if n % 3 else None for n, job_id in enumerate(ids)}
    ends = [completed(run, emitted=bodies[run.job.job_id]) for run in await bench.claim()]
    assert await bench.store.apply(ends) == [Applied(3)] * 9
    seen = await read(bench)
    assert {event.entry.job_id: event.entry.emitted for event in seen} == bodies
    assert [event.sequence for event in seen] == list(range(1, 10))


@rule
async def what_is_emitted_may_have_company(bench: Bench) -> None:
    """Follow-ups, keys and records of the same run."""
    run = await bench.start(idempotency_key="key")
    once = DedupeKey(KeyKind.ONCE, "default", "test", "mail-7", b"", HOUR)
    end = completed(
        run,
        emitted=emitted("both"),
        follow_ups=(make_new("next", logged=True, job_type="next"),),
        records=(RecordWrite("space", "key", b"1"),),
        once=(once,),
    )
    assert await bench.store.apply([end]) == [Applied(3)]
    assert [(row.event, row.emitted) for row in await rows(bench)] == [
        (Event.COMPLETED, emitted("both")),
        (Event.SUBMITTED, None),
    ]


@rule
async def the_most_that_a_run_may_emit_is_kept(bench: Bench) -> None:
    run = await bench.start()
    body = emitted(*["ü" * 450 for _ in range(16)])
    assert len(body) > 15_000
    await bench.store.apply([completed(run, emitted=body)])
    assert [row.emitted for row in await rows(bench)] == [body]


@rule
async def an_end_that_is_refused_brings_nothing(bench: Bench) -> None:
    lost = await bench.start()
    await bench.reap_expired()
    assert await bench.store.apply([completed(lost, emitted=emitted("late"))]) == [Stale()]
    await bench.store.write_records([RecordWrite("space", "key", b"theirs")])
    bench.clock.advance(HOUR)
    (run,) = await bench.claim()
    write = RecordWrite("space", "key", b"ours", expected=7)
    ours = Success(records=(write,), emitted=emitted("in vain"))
    end = Transition.completed(run, ours, hold_key=HOUR)
    assert await bench.store.apply([end]) == [Conflict(by="space/key")]
    settled = await bench.settle(run, ours)
    assert settled.transition.to is JobStatus.FAILED
    assert [row.emitted for row in await rows(bench)] == [None, None]


@rule
async def an_end_that_is_repeated_brings_it_once(bench: Bench) -> None:
    run = await bench.start()
    end = completed(run, emitted=emitted("once"))
    assert await bench.store.apply([end]) == [Applied(3)]
    assert await bench.store.apply([end]) == [Applied(3)]
    failed = Transition.failed(run, PERMANENT.error, Reason.PERMANENT_ERROR)
    assert await bench.store.apply([failed]) == [Stale()]
    assert [row.emitted for row in await rows(bench)] == [emitted("once")]


@rule
async def only_the_end_that_emitted_has_it(bench: Bench) -> None:
    """Neither the rows before it, nor those of the same run on the way."""
    run = await bench.start(max_attempts=2)
    await bench.finish(run, RETRYABLE)
    bench.clock.advance(HOUR)
    (run,) = await bench.claim()
    await bench.finish(run, Success(emitted=emitted("second")))
    assert [(row.event, row.emitted) for row in await rows(bench)] == [
        (Event.RETRIED, None),
        (Event.COMPLETED, emitted("second")),
    ]
