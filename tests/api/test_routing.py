"""Where a job may go: to the queues that its type declares, not before others of its type.

Else the caller needs a right for the whole installation. Gantline's own queues are for nobody.
"""

from typing import Any

import pytest

from gantline import Gantline
from gantline.api.settings import ApiSettings
from tests.api.application import PRINCIPALS, AuditKept, ByName
from tests.api.conftest import Asker, asker_of

SCHEDULE = {"name": "nightly", "everySeconds": 60}


@pytest.fixture(autouse=True)
def _reports(jobs: Gantline) -> None:
    @jobs.job("report", queue="reports", queues=("bulk", "night"), priority=1)
    async def report() -> None: ...


def report(**options: Any) -> dict[str, Any]:
    return {"jobType": "report", **options}


OWN: list[dict[str, Any]] = [
    {},
    {"queue": "reports"},
    {"queue": "bulk"},
    {"queue": "night", "priority": 1},
    {"priority": 2},
    {"priority": 3},
]
FOREIGN: list[dict[str, Any]] = [
    {"queue": "default"},
    {"queue": "documents"},
    {"queue": "invented"},
    {"priority": 0},
]
RESERVED = ["webhooks", "gantline.outbox", "gantline.anything"]
EVERYBODY = sorted(set(PRINCIPALS) - {"mailer", "mail-viewer", "canceller", "system-caller"})
"""Who may submit this type."""


async def submitted(ask: Asker, who: str, options: dict[str, Any]) -> tuple[int, str]:
    response = await ask(who, "POST", "/api/jobs", report(**options))
    return response.status_code, response.json().get("errorCode", "")


@pytest.mark.parametrize("who", EVERYBODY)
async def test_everybody_chooses_among_what_the_type_declares(ask: Asker, who: str) -> None:
    for options in OWN:
        assert await submitted(ask, who, options) == (202, ""), options


@pytest.mark.parametrize("who", EVERYBODY)
async def test_another_queue_and_a_higher_priority_need_a_right(ask: Asker, who: str) -> None:
    expected = (202, "") if who == "system" else (403, "FORBIDDEN")
    for options in FOREIGN:
        assert await submitted(ask, who, options) == expected, options


async def test_the_refusal_says_what_is_declared_and_which_right_is_missing(ask: Asker) -> None:
    refused = await ask("operator", "POST", "/api/jobs", report(queue="default"))
    assert refused.json()["detail"] == (
        "Jobs of type 'report' go to the queue 'reports' or 'bulk' or 'night', with a priority "
        "from 1 to 3. This needs the right jobs:route for all tenants, as a key made with "
        "--system has it. Leave queue and priority out, or have the type declare them."
    )


async def test_what_is_refused_is_audited_and_what_is_allowed_is_in_the_job(
    ask: Asker, audit: AuditKept
) -> None:
    await submitted(ask, "alice", {"queue": "default"})
    await submitted(ask, "alice", {"priority": 0})
    await submitted(ask, "system", {"queue": "default"})
    found = [(one.actor, one.action, one.outcome, one.what) for one in audit.entries]
    assert found == [
        ("user:alice", "jobs:route", "forbidden", "queue:default"),
        ("user:alice", "jobs:route", "forbidden", "priority:0"),
    ]


async def test_who_may_not_submit_learns_nothing_of_what_is_declared(
    ask: Asker, audit: AuditKept
) -> None:
    refused = await ask("mailer", "POST", "/api/jobs", report(queue="default"))
    assert (refused.status_code, "reports" in refused.text) == (403, False)
    assert [one.action for one in audit.entries] == ["jobs:submit"]


@pytest.mark.parametrize("who", ["alice", "operator", "system"])
@pytest.mark.parametrize("queue", RESERVED)
async def test_nobody_submits_to_our_own_queues(ask: Asker, who: str, queue: str) -> None:
    refused = await ask(who, "POST", "/api/jobs", report(queue=queue))
    assert (refused.status_code, refused.json()["errorCode"]) == (422, "VALIDATION_ERROR")
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "#/queue"
    assert "Gantline's own" in error["detail"]


async def test_each_job_of_a_batch_is_decided_by_itself(ask: Asker) -> None:
    named: list[dict[str, Any]] = [{}, *({"queue": name} for name in ("default", "bulk"))]
    named += [{"queue": "webhooks"}, {"priority": 0}]
    body = {"jobs": [report(**one) for one in named]}
    items = (await ask("alice", "POST", "/api/jobs/batch", body)).json()["items"]
    codes = [item["problem"] and item["problem"]["errorCode"] for item in items]
    assert codes == [None, "FORBIDDEN", None, "VALIDATION_ERROR", "FORBIDDEN"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        *[(options, 201) for options in OWN],
        *[(options, 403) for options in FOREIGN],
        *[({"queue": queue}, 422) for queue in RESERVED],
    ],
)
async def test_a_schedule_goes_where_its_maker_may_submit(
    ask: Asker, options: dict[str, Any], status: int
) -> None:
    made = await ask("operator", "POST", "/api/schedules", report(**SCHEDULE, **options))
    assert made.status_code == status
    if status != 201:
        await ask("operator", "POST", "/api/schedules", report(**SCHEDULE))
        other = report(everySeconds=60, **options)
        replaced = await ask("operator", "PUT", "/api/schedules/nightly", other)
        assert replaced.status_code == status
        by_system = await ask("system", "POST", "/api/schedules", report(**SCHEDULE, **options))
        assert by_system.status_code == (201 if status == 403 else status)


async def test_an_edited_redrive_keeps_where_the_job_was_and_names_no_other(
    ask: Asker, jobs: Gantline
) -> None:
    """The application itself may have put it there."""
    found = jobs.find_type("report")
    assert found is not None
    handle = await found.submit(
        queue="elsewhere", priority=0, owner="user:alice", tenant="acme", subject="s"
    )
    path = f"/api/jobs/{handle.job_id}"
    await ask("alice", "POST", f"{path}/cancel")
    for options in FOREIGN:
        refused = await ask("alice", "POST", f"{path}/edited-redrive", options)
        assert refused.status_code == 403, options
    same = await ask("alice", "POST", f"{path}/edited-redrive", {"subjectId": "t"})
    new = (await ask("operator", "GET", f"/api/jobs/{same.json()['jobId']}")).json()
    assert (new["queue"], new["priority"]) == ("elsewhere", 0)
    moved = await ask("alice", "POST", f"{path}/edited-redrive", {"queue": "bulk", "priority": 2})
    assert moved.status_code == 202


async def test_a_tenant_has_jobs_in_a_bounded_number_of_queues(jobs: Gantline) -> None:
    """Whoever may name queues names no more than this; those that there are stay open."""
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(queues_per_tenant=5))
    async with asker_of(api) as ask:
        names = [f"q{number}" for number in range(50)]
        answers = [await submitted(ask, "system", {"queue": name}) for name in names]
        assert answers == [(202, "")] * 5 + [(422, "VALIDATION_ERROR")] * 45
        assert await submitted(ask, "system", {"queue": "q4"}) == (202, "")
        assert await submitted(ask, "system", {}) == (202, "")  # its own, whatever there is
        assert await submitted(ask, "system", {"queue": "q9", "tenantId": "acme"}) == (202, "")
    counted = await jobs.store.counts(tenant_id="default")
    assert len({lane.queue for lane in counted}) == 6


async def test_there_is_room_for_a_new_queue_when_the_jobs_of_another_are_gone(
    jobs: Gantline,
) -> None:
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(queues_per_tenant=1))
    async with asker_of(api) as ask:
        assert await submitted(ask, "system", {"queue": "one"}) == (202, "")
        assert (await submitted(ask, "system", {"queue": "two"}))[0] == 422
        await jobs.store.clear()
        assert await submitted(ask, "system", {"queue": "two"}) == (202, "")


async def test_the_type_says_which_queues_there_are(ask: Asker) -> None:
    found = (await ask("alice", "GET", "/api/job-types/report")).json()
    assert (found["queue"], found["queues"]) == ("reports", ["bulk", "night"])


@pytest.mark.parametrize("body", [{"scheduledAt": "2037-01-01T00:00:00Z"}, {"delaySeconds": 4e8}])
async def test_no_job_is_put_off_for_more_than_ten_years(ask: Asker, body: dict[str, Any]) -> None:
    refused = await ask("system", "POST", "/api/jobs", report(**body))
    assert (refused.status_code, refused.json()["errorCode"]) == (422, "VALIDATION_ERROR")
    (error,) = refused.json()["errors"]
    assert error["pointer"] == f"#/{next(iter(body))}"
