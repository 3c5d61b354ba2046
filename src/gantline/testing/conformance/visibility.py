"""Rules for who sees what in lists: the narrowing is the store's, before pages are cut."""

from itertools import product
from uuid import UUID

import msgspec

from gantline.contract.query import NOTHING_VISIBLE, JobFilter, Visibility
from gantline.contract.status import DerivedState, JobStatus
from gantline.contract.submission import NewJob
from gantline.testing.conformance.bench import HOUR, Bench
from gantline.testing.conformance.reading import all_pages, stand_in_every_state
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import make_new

VISIBILITIES = {
    "all of every tenant": Visibility(tenant_id=None),
    "all of a tenant": Visibility(tenant_id="a"),
    "one's own": Visibility(tenant_id="a", owner="me"),
    "granted subjects": Visibility(tenant_id="a", owner="", subjects=frozenset({"s1", "s2"})),
    "one's own and granted subjects": Visibility(
        tenant_id="a", owner="me", subjects=frozenset({"s1", "unknown"})
    ),
    "one's own in every tenant": Visibility(tenant_id=None, owner="me", subjects=frozenset({"s1"})),
    "one's own of a type": Visibility(tenant_id="a", owner="me", job_types=frozenset({"test"})),
    "all of a type": Visibility(tenant_id="a", job_types=frozenset({"other", "unknown"})),
    "one's own with a subject": Visibility(
        tenant_id="a", owner="me", subjects=frozenset({"s1"}), subject_required=True
    ),
    "nothing": NOTHING_VISIBLE,
    "nobody's": Visibility(tenant_id="a", owner=""),
    "about nothing": Visibility(tenant_id="a", owner="", subjects=frozenset({""})),
    "a stranger's": Visibility(tenant_id="a", owner="me'; --", subjects=frozenset({"%", "_"})),
}


FILTERS = (
    JobFilter(tenant_id=None),
    JobFilter(tenant_id="a"),
    JobFilter(tenant_id="b"),
    JobFilter(tenant_id="a", job_types=frozenset({"other"})),
    JobFilter(tenant_id="a", subject_id="s1"),
    JobFilter(tenant_id="a", created_by="you"),
    JobFilter(tenant_id=None, statuses=frozenset({JobStatus.QUEUED})),
    JobFilter(tenant_id="a", statuses=frozenset({JobStatus.QUEUED, JobStatus.FAILED})),
    JobFilter(tenant_id="a", statuses=frozenset({JobStatus.RUNNING})),
)


def every_mix() -> list[NewJob]:
    mixes = product(("a", "b"), ("", "me", "you"), ("", "s1", "s2"), ("test", "other"))
    return [
        make_new(tenant_id=tenant, created_by=owner, subject_id=subject, job_type=kind)
        for tenant, owner, subject, kind in mixes
    ]


@rule_for(VISIBILITIES)
async def a_list_holds_just_what_is_visible(bench: Bench, name: str) -> None:
    await bench.store.insert(every_mix())
    seen = VISIBILITIES[name]
    for asked in FILTERS:
        everything = await all_pages(bench, asked, limit=50)
        shown = await all_pages(bench, msgspec.structs.replace(asked, visible_to=seen), limit=3)
        assert shown == [job for job in everything if seen.admits(job.job)], asked


@rule_for(JobStatus)
async def what_is_visible_is_so_in_every_status(bench: Bench, status: JobStatus) -> None:
    seen = Visibility(tenant_id="a", owner="me", subjects=frozenset({"s1"}))
    job_filter = JobFilter(tenant_id="a", statuses=frozenset({status}), visible_to=seen)
    ids = [
        await brought(bench, status, tenant_id=tenant, created_by=owner, subject_id=subject)
        for tenant, owner, subject in (
            ("a", "me", ""),
            ("a", "", "s1"),
            ("a", "you", "s2"),
            ("a", "", ""),
            ("b", "me", "s1"),
        )
    ]
    found = [job.job.job_id for job in await all_pages(bench, job_filter, limit=1)]
    assert found == sorted(ids[:2], reverse=True)


async def brought(bench: Bench, status: JobStatus, **fields: str) -> UUID:
    """Bring a job to a status; a Queued one as it is, or `bring_to` would claim the one before."""
    if status is JobStatus.QUEUED:
        return await bench.submit(**fields)
    return (await bench.bring_to(status, **fields))[0]


@rule
async def a_job_that_is_visible_twice_is_listed_once(bench: Bench) -> None:
    seen = Visibility(tenant_id="a", owner="me", subjects=frozenset({"s1"}))
    jobs = [await bench.submit(tenant_id="a", created_by="me", subject_id="s1") for _ in range(5)]
    found = await all_pages(bench, JobFilter(tenant_id="a", visible_to=seen), limit=2)
    assert [job.job.job_id for job in found] == sorted(jobs, reverse=True)


@rule_for(VISIBILITIES)
async def what_is_visible_is_so_in_every_derived_state(bench: Bench, name: str) -> None:
    for mine in ({"created_by": "me"}, {"subject_id": "s1"}, {"created_by": "you"}):
        await stand_in_every_state(bench, tenant_id="a", **mine)
    await stand_in_every_state(bench, tenant_id="b", created_by="me")
    seen, soon = VISIBILITIES[name], bench.clock.now() + HOUR / 2
    for asked in (
        *(JobFilter(tenant_id=None, statuses=frozenset({state})) for state in DerivedState),
        JobFilter(tenant_id=None, due_before=soon),
    ):
        everything = await all_pages(bench, asked, limit=50)
        shown = await all_pages(bench, msgspec.structs.replace(asked, visible_to=seen), limit=3)
        assert shown == [job for job in everything if seen.admits(job.job)], asked
