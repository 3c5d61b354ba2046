"""In which group a job is that comes over HTTP: who may name it, so that limits hold."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gantline import Gantline, Limit
from gantline.contract.flow import TypeFlow
from gantline.contract.query import JobFilter
from gantline.contract.records import RecordWrite
from gantline.flow.rules import LIMITS, Rule
from tests.api.application import AuditKept
from tests.api.conftest import Asker


class Mail(msgspec.Struct):
    account: str


@pytest.fixture(autouse=True)
def _types(jobs: Gantline) -> None:
    @jobs.job("grouped", group="{account}")
    async def grouped(mail: Mail) -> None: ...

    @jobs.job("limited", limits=[Limit(running=2)])
    async def limited(mail: Mail) -> None: ...

    @jobs.job("free")
    async def free(mail: Mail) -> None: ...


@pytest.fixture
def prepared(jobs: Gantline, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Of each job that is submitted, its type and its group."""
    kept: list[tuple[str, str]] = []
    submit = jobs.submit_prepared

    async def keeping(new: Any, **options: Any) -> Any:
        kept.append((new.job.job_type, new.job.group))
        return await submit(new, **options)

    monkeypatch.setattr(jobs, "submit_prepared", keeping)
    return kept


def job(job_type: str, **fields: Any) -> Mapping[str, Any]:
    return {"jobType": job_type, "payload": {"account": "7"}, **fields}


async def test_who_names_no_group_has_that_of_the_type(
    ask: Asker, prepared: list[tuple[str, str]]
) -> None:
    for name in ("grouped", "limited", "free"):
        assert (await ask("alice", "POST", "/api/jobs", job(name))).status_code == 202
    assert prepared == [("grouped", "7"), ("limited", ""), ("free", "")]


async def test_without_limits_and_groups_of_its_type_everybody_names_one(
    ask: Asker, prepared: list[tuple[str, str]]
) -> None:
    answer = await ask("alice", "POST", "/api/jobs", job("free", group="mine"))
    assert answer.status_code == 202
    assert prepared == [("free", "mine")]


@pytest.mark.parametrize("name", ["grouped", "limited"])
@pytest.mark.parametrize("group", ["mine", ""])
async def test_else_a_group_needs_a_right(
    ask: Asker,
    audit: AuditKept,
    prepared: list[tuple[str, str]],
    name: str,
    group: str,
) -> None:
    refused = await ask("alice", "POST", "/api/jobs", job(name, group=group))
    assert (refused.status_code, refused.json()["errorCode"]) == (403, "FORBIDDEN")
    assert refused.json()["detail"] == (
        f"Jobs of type {name!r} have limits, or groups that their type makes. This needs the right "
        "jobs:route for all tenants, as a key made with --system has it. Leave group out."
    )
    assert [(one.action, one.what) for one in audit.entries] == [("jobs:route", f"group:{group}")]
    assert (await ask("system", "POST", "/api/jobs", job(name, group=group))).status_code == 202
    assert prepared == [(name, group)]


async def test_a_type_that_an_operator_has_limited_counts_too(ask: Asker, jobs: Gantline) -> None:
    rule = Rule().with_declared(flow=TypeFlow(job_type="free", running=1), now=jobs.clock.now())
    await jobs.open()
    await jobs.store.write_records([RecordWrite(LIMITS, "free", msgspec.json.encode(rule))])
    refused = await ask("alice", "POST", "/api/jobs", job("free", group="mine"))
    assert refused.status_code == 403


async def test_each_job_of_a_batch_is_decided_by_itself(ask: Asker) -> None:
    body = {"jobs": [job("limited"), job("limited", group="x"), job("free", group="x")]}
    items = (await ask("alice", "POST", "/api/jobs/batch", body)).json()["items"]
    assert [item["problem"] is None for item in items] == [True, False, True]


async def test_who_may_not_submit_learns_nothing_of_limits(ask: Asker) -> None:
    refused = await ask("mailer", "POST", "/api/jobs", job("limited", group="x"))
    assert (refused.status_code, "limits" in refused.text) == (403, False)


async def test_a_group_that_is_too_long_is_refused(ask: Asker) -> None:
    refused = await ask("alice", "POST", "/api/jobs", job("free", group="x" * 257))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "#/group"


async def test_the_group_is_part_of_what_is_shown(ask: Asker, jobs: Gantline) -> None:
    await ask("alice", "POST", "/api/jobs", job("free", group="mine"))
    (found,) = (await jobs.store.find(JobFilter(tenant_id=None), limit=9)).items
    shown = (await ask("system", "GET", f"/api/jobs/{found.job.job_id}")).json()
    assert shown["group"] == found.job.group


async def test_the_group_of_a_schedule_needs_the_same_right(ask: Asker) -> None:
    schedule = {"name": "nightly", "everySeconds": 60, **job("limited", group="x")}
    assert (await ask("operator", "POST", "/api/schedules", schedule)).status_code == 403
    made = await ask("system", "POST", "/api/schedules", schedule)
    assert (made.status_code, made.json()["group"]) == (201, "x")
