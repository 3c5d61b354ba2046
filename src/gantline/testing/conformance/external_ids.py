"""Rules for external ids: keys of their tenant, by which a job is found as long as it is stored."""

from uuid import UUID, uuid4

from gantline.contract.errors import JobNotFound
from gantline.contract.outcome import Success
from gantline.contract.policy import DEFAULT_POLICY
from gantline.contract.query import JobFilter, PruneRule
from gantline.contract.results import Applied, Conflict, Duplicate
from gantline.contract.status import TERMINAL, JobStatus
from gantline.contract.stored import StoredKey
from gantline.contract.submission import KeyKind, external_key
from gantline.contract.transition import StateGuard, Transition
from gantline.manager.manager import Acted
from gantline.testing.conformance.bench import HOUR, PERMANENT, Bench
from gantline.testing.conformance.moving import read_out
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import make_new

GIVEN = UUID("5f0c1f0e-7d0b-5b57-9a53-3b0f8d1c6a4e")


async def only_they_hold_it(bench: Bench, theirs: UUID) -> None:
    """Nothing is left of the key of the other tenant."""
    keys = [external_key(tenant, GIVEN) for tenant in ("default", "theirs")]
    assert await bench.store.held(keys) == [None, theirs]
    stored = await read_out(bench.store)
    assert [key.job_id for key in stored if isinstance(key, StoredKey)] == [theirs]


@rule
async def every_tenant_has_external_ids_of_its_own(bench: Bench) -> None:
    mine = await bench.submit(1, external_id=GIVEN, tenant_id="mine")
    same, other = (make_new(n, external_id=GIVEN, tenant_id=f"with {n}") for n in (1, 2))
    assert await bench.store.insert([same, other]) == [Applied(1)] * 2
    tenants = ("mine", "with 1", "with 2", "with 3")
    holders = await bench.store.held([external_key(tenant, GIVEN) for tenant in tenants])
    assert holders == [mine, same.job.job_id, other.job.job_id, None]


@rule
async def the_same_external_id_and_content_gives_the_existing_job(bench: Bench) -> None:
    first = await bench.submit({"a": 1}, external_id=GIVEN)
    again = make_new({"a": 1}, external_id=GIVEN)
    assert await bench.store.insert([again]) == [Duplicate(first, by=KeyKind.ID)]
    assert await bench.store.get([again.job.job_id], tenant_id=None) == [None]


@rule
async def the_same_external_id_with_other_content_is_a_conflict(bench: Bench) -> None:
    await bench.submit(1, external_id=GIVEN)
    others = [
        make_new(2, external_id=GIVEN),
        make_new(1, external_id=GIVEN, job_type="other"),
        make_new(1, external_id=GIVEN, payload_version=2),
    ]
    assert await bench.store.insert(others) == [Conflict(by=KeyKind.ID)] * 3
    assert (await bench.recount())["Queued"] == 1


@rule
async def a_repeated_insert_is_known_by_its_own_id(bench: Bench) -> None:
    """Its answer was lost."""
    new = make_new(1, external_id=GIVEN)
    assert await bench.store.insert([new]) == [Applied(1)]
    assert await bench.store.insert([new]) == [Duplicate(new.job.job_id)]


@rule
async def the_id_of_a_job_of_another_tenant_is_like_any_other(bench: Bench) -> None:
    """It does not clash, so nobody learns that there is such a job."""
    theirs = await bench.submit(1, tenant_id="theirs")
    for payload, tenant in ((1, "mine"), (2, "another")):
        new = make_new(payload, external_id=theirs, tenant_id=tenant)
        assert await bench.store.insert([new]) == [Applied(1)]
        (found,) = await bench.manager.get([theirs], tenant_id=tenant)
        assert found is not None
        assert found.job == new.job
    assert (await bench.snapshot(theirs)).job.tenant_id == "theirs"


@rule
async def the_id_of_a_job_of_the_same_tenant_names_that_job(bench: Bench) -> None:
    job_id = await bench.submit(1)
    jobs = [
        make_new(1, external_id=job_id),
        make_new(2, external_id=job_id),
        make_new(1, external_id=job_id, job_type="other"),
    ]
    assert await bench.store.insert(jobs) == [
        Duplicate(job_id, by=KeyKind.ID),
        Conflict(by=KeyKind.ID),
        Conflict(by=KeyKind.ID),
    ]
    assert await bench.store.held([external_key("default", job_id)]) == [None]


@rule
async def of_two_with_one_external_id_in_one_call_the_first_wins(bench: Bench) -> None:
    first, same, other = (make_new(n, external_id=GIVEN) for n in (1, 1, 2))
    theirs = make_new(2, external_id=GIVEN, tenant_id="theirs")
    named = make_new(3, external_id=first.job.job_id)
    answers = await bench.store.insert([first, same, other, theirs, named])
    assert answers == [
        Applied(1),
        Duplicate(first.job.job_id, by=KeyKind.ID),
        Conflict(by=KeyKind.ID),
        Applied(1),
        Conflict(by=KeyKind.ID),
    ]


@rule_for(tuple(JobStatus))
async def a_job_holds_its_external_id_in_every_status(bench: Bench, status: JobStatus) -> None:
    job_id, _ = await bench.bring_to(status, external_id=GIVEN)
    bench.clock.advance(1000 * HOUR)
    assert (await bench.store.prune([], limit=10)).keys == 0
    again, other = make_new(None, external_id=GIVEN), make_new("other", external_id=GIVEN)
    answers = await bench.store.insert([again, other])
    assert answers == [Duplicate(job_id, by=KeyKind.ID), Conflict(by=KeyKind.ID)]


@rule_for(sorted(TERMINAL))
async def deleting_a_job_frees_its_external_id(bench: Bench, status: JobStatus) -> None:
    theirs = await bench.submit(external_id=GIVEN, tenant_id="theirs", job_type="waits")
    job_id, _ = await bench.bring_to(status, external_id=GIVEN)
    job = await bench.snapshot(job_id)
    guard = StateGuard(job.status, job.job.tenant_id, job.version)
    assert await bench.store.delete([(job_id, guard)]) == [Applied(job.version)]
    await only_they_hold_it(bench, theirs)
    assert await bench.store.insert([make_new("new", external_id=GIVEN)]) == [Applied(1)]


@rule_for(sorted(TERMINAL))
async def pruning_a_job_frees_its_external_id(bench: Bench, status: JobStatus) -> None:
    theirs = await bench.submit(external_id=GIVEN, tenant_id="theirs", job_type="waits")
    plain, _ = await bench.bring_to(status)
    job_id, _ = await bench.bring_to(status, external_id=GIVEN, subject_id="s")
    bench.clock.advance(HOUR)
    rule_ = PruneRule(status, bench.clock.now())
    assert (await bench.store.prune([rule_], limit=10)).jobs == 2
    assert await bench.store.get([plain, job_id], tenant_id=None) == [None, None]
    await only_they_hold_it(bench, theirs)
    assert await bench.store.insert([make_new("new", external_id=GIVEN)]) == [Applied(1)]


@rule
async def a_refused_job_takes_no_external_id(bench: Bench) -> None:
    await bench.submit(1, idempotency_key="k")
    refused = make_new(2, idempotency_key="k", external_id=GIVEN)
    assert await bench.store.insert([refused]) == [Conflict(by=KeyKind.JOB)]
    assert await bench.store.held([external_key("default", GIVEN)]) == [None]


@rule
async def a_repeat_is_found_by_its_external_id_whoever_has_its_key(bench: Bench) -> None:
    """Its job failed and freed the key, and another job took that."""
    first = await bench.submit(1, idempotency_key="k", external_id=GIVEN)
    await bench.finish((await bench.claim())[0], PERMANENT)
    await bench.submit(2, idempotency_key="k")
    again = make_new(1, idempotency_key="k", external_id=GIVEN)
    assert await bench.store.insert([again]) == [Duplicate(first, by=KeyKind.ID)]


@rule
async def a_follow_up_may_have_an_external_id(bench: Bench) -> None:
    existing = await bench.submit("x", job_type="next", external_id=GIVEN)
    run = await bench.start()
    again = make_new("x", job_type="next", external_id=GIVEN)
    clash = make_new("y", job_type="next", external_id=GIVEN)
    pair = tuple(make_new(n, job_type="next", external_id=uuid4()) for n in (1, 2))
    alike = tuple(make_new(n, job_type="next", external_id=UUID(int=7)) for n in (1, 2))
    hold = DEFAULT_POLICY.hold_key
    for refused in ((clash,), alike):
        ended = Transition.completed(run, Success(follow_ups=refused), hold_key=hold)
        assert await bench.store.apply([ended]) == [Conflict(by=KeyKind.ID)]
    ended = Transition.completed(run, Success(follow_ups=(again, *pair)), hold_key=hold)
    assert await bench.store.apply([ended]) == [Applied(3)]
    stored = {run.job.job_id for run in await bench.claim("next")}
    assert stored == {existing, *(new.job.job_id for new in pair)}


@rule
async def whoever_reads_a_job_sees_its_external_id(bench: Bench) -> None:
    new = make_new(1, external_id=GIVEN, delay=HOUR)
    assert await bench.store.insert([new]) == [Applied(1)]
    (found,) = (await bench.store.find(JobFilter(), limit=10)).items
    bench.clock.advance(HOUR)
    (run,) = await bench.claim()
    assert [(await bench.snapshot(new.job.job_id)).job, found.job] == [run.job] * 2
    assert run.job.external_id == GIVEN
    await bench.let_leases_expire()
    assert [one.job for one in await bench.store.expired(limit=10)] == [run.job]


@rule
async def a_job_is_found_and_operated_by_either_id_in_its_tenant(bench: Bench) -> None:
    job_id = await bench.submit(external_id=GIVEN)
    other = await bench.submit(2)
    manager = bench.manager
    found = await manager.get([GIVEN, other, uuid4(), job_id], tenant_id="default")
    assert [job and job.job.job_id for job in found] == [job_id, other, None, job_id]
    for act, status in ((manager.cancel, "Cancelled"), (manager.redrive, "Queued")):
        first, second = await act([GIVEN, other], tenant_id="default", actor="op")
        assert isinstance(first, Acted)
        assert isinstance(second, Acted)
        assert (first.job_id, first.status, second.job_id) == (job_id, status, other)
    await manager.cancel([GIVEN], tenant_id="default", actor="op")
    assert isinstance((await manager.delete([GIVEN], tenant_id="default"))[0], Applied)
    assert await bench.store.get([job_id], tenant_id=None) == [None]


@rule_for(("other", None))
async def an_external_id_finds_nothing_from_elsewhere(bench: Bench, tenant: str | None) -> None:
    """Across tenants neither: several may have the same."""
    job_id = await bench.submit(external_id=GIVEN)
    manager = bench.manager
    assert await manager.get([GIVEN], tenant_id=tenant) == [None]
    (cancelled,) = await manager.cancel([GIVEN], tenant_id=tenant, actor="op")
    (deleted,) = await manager.delete([GIVEN], tenant_id=tenant)
    assert isinstance(cancelled, JobNotFound)
    assert isinstance(deleted, JobNotFound)
    assert await bench.status(job_id) is JobStatus.QUEUED
