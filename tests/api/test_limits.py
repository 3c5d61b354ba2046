"""Limits over HTTP: which hold, setting and clearing them, gates, and groups that wait."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gantline import Gantline, Limit, Throttled
from gantline.contract.classify import classify
from gantline.contract.query import LaneRequest
from gantline.manager.manager import Ending
from gantline.testing.factories import register_sessions
from tests.api.application import AuditKept
from tests.api.conftest import Asker


class Mail(msgspec.Struct):
    account: str


@pytest.fixture(autouse=True)
async def _types(jobs: Gantline) -> None:
    @jobs.job("mail-shot", group="{account}", limits=[Limit(running=2)])
    async def shot(mail: Mail) -> None: ...

    @jobs.job("call", limits=[Limit(rate="100/s", gate="api"), Limit(running=9, per="type")])
    async def call(mail: Mail) -> None: ...

    await jobs.open()
    await jobs.limits.declare([*(shot.flows or ()), *(call.flows or ())])


def limits(**changes: Any) -> dict[str, Any]:
    none = dict.fromkeys(("running", "runningInAll", "rate", "burst", "gate"))
    return none | changes


CALL = limits(runningInAll=9, rate="100/s", burst=10, gate="api")


def kinds(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in limits()}


async def test_the_limits_of_types_are_listed_with_what_is_declared(ask: Asker) -> None:
    items = (await ask("system", "GET", "/api/limits")).json()["items"]
    assert {item["jobType"]: kinds(item) for item in items} == {
        "call": CALL,
        "mail-shot": limits(running=2),
    }
    shown = (await ask("system", "GET", "/api/limits/call")).json()
    assert (shown["set"], shown["setBy"], shown["setAt"]) == ([], None, None)
    assert [kinds(one) for one in shown["declared"]] == [CALL]


async def test_a_type_without_limits_shows_none(ask: Asker) -> None:
    answer = await ask("system", "GET", "/api/limits/mail")
    assert (answer.status_code, kinds(answer.json())) == (200, limits())


async def test_what_is_set_holds_over_what_is_declared_until_it_is_cleared(
    ask: Asker, audit: AuditKept
) -> None:
    path = "/api/limits/call"
    shown = (await ask("system", "PUT", path, {"rate": "10/m", "runningInAll": None})).json()
    assert kinds(shown) == limits(rate="10/m", burst=1, gate="api")
    assert (shown["set"], shown["setBy"]) == (["runningInAll", "rate"], "user:system")
    shown = (await ask("system", "PUT", path, {"burst": 5})).json()
    assert kinds(shown) == limits(rate="10/m", burst=5, gate="api")
    shown = (await ask("system", "PUT", path, {"rate": None, "running": 3})).json()
    assert kinds(shown) == limits(running=3)
    shown = (await ask("system", "DELETE", path)).json()
    assert (kinds(shown), shown["set"], shown["setBy"]) == (CALL, [], None)
    assert [(one.operation, one.what, one.details) for one in audit.entries] == [
        ("setLimits", "type:call", {"rate": "10/m", "runningInAll": None}),
        ("setLimits", "type:call", {"burst": 5}),
        ("setLimits", "type:call", {"rate": None, "running": 3}),
        ("clearLimits", "type:call", {"declared": False}),
    ]


async def test_what_is_declared_can_be_forgotten(ask: Asker) -> None:
    shown = (await ask("system", "DELETE", "/api/limits/call?declared=true")).json()
    assert (kinds(shown), shown["declared"]) == (limits(), [])


async def test_who_has_set_them_is_shown_to_operators_of_the_installation(ask: Asker) -> None:
    await ask("system", "PUT", "/api/limits/call", {"running": 1})
    assert (await ask("operator", "GET", "/api/limits/call")).json()["setBy"] is None
    assert (await ask("system", "GET", "/api/limits/call")).json()["setBy"] == "user:system"


@pytest.mark.parametrize("who", ["alice", "viewer", "operator", "admin"])
async def test_only_operators_of_the_installation_change_them(ask: Asker, who: str) -> None:
    assert (await ask(who, "PUT", "/api/limits/call", {"running": 1})).status_code == 403
    assert (await ask(who, "DELETE", "/api/limits/call")).status_code == 403
    assert (await ask(who, "GET", "/api/gates")).status_code == 403


async def test_a_gate_is_changed_only_by_who_may_change_all_types_that_share_it(
    ask: Asker, jobs: Gantline
) -> None:
    @jobs.job("letter", limits=[Limit(rate="100/s", gate="api")])
    async def letter() -> None: ...

    await jobs.limits.declare(letter.flows or ())
    for body in ({"rate": "1/d"}, {"burst": 1}, {"rate": None}, {"gate": "mine"}):
        refused = await ask("system-caller", "PUT", "/api/limits/call", body)
        assert refused.status_code == 403, body
    assert (await ask("system-caller", "DELETE", "/api/limits/call")).status_code == 403
    assert (
        await ask("system-caller", "PUT", "/api/limits/mail-shot", {"rate": "1/d", "gate": "api"})
    ).status_code == 403
    assert (await ask("system-caller", "PUT", "/api/limits/call", {"running": 1})).is_success
    assert (await ask("system", "PUT", "/api/limits/call", {"rate": "50/s"})).is_success
    shown = (await ask("system", "GET", "/api/limits/letter")).json()
    assert shown["rate"] == "50/s"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"running": 0}, "#/running"),
        ({"running": -1}, "#/running"),
        ({"running": 1.5}, "#/running"),
        ({"runningInAll": 10**9}, "#/runningInAll"),
        ({"burst": 0, "rate": "1/s"}, "#/burst"),
        ({"gate": "", "rate": "1/s"}, "#/gate"),
        ({"rate": 5}, "#/rate"),
        ({"rates": "5/s"}, ""),
        ({"rate": "0/s"}, ""),
        ({"rate": "nan/s"}, ""),
        ({"rate": None, "burst": 3}, ""),
        ({}, ""),
    ],
)
async def test_what_is_no_limit_is_refused(ask: Asker, body: Any, pointer: str) -> None:
    refused = await ask("system", "PUT", "/api/limits/call", body)
    assert (refused.status_code, refused.json()["errorCode"]) == (422, "VALIDATION_ERROR")
    if pointer:
        assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]


async def test_a_burst_of_a_type_without_a_rate_says_what_is_missing(ask: Asker) -> None:
    refused = await ask("system", "PUT", "/api/limits/mail-shot", {"burst": 3})
    assert "Give it a rate too." in refused.json()["detail"]


async def test_a_gate_says_whether_and_until_when_it_is_closed(ask: Asker, jobs: Gantline) -> None:
    (gate,) = (await ask("system", "GET", "/api/gates")).json()["items"]
    assert gate == {
        "gate": "api",
        "rate": "100/s",
        "burst": 10,
        "jobTypes": ["call"],
        "closed": False,
        "opensAt": None,
        "throttled": False,
    }
    call = {"jobType": "call", "payload": {"account": "7"}}
    assert (await ask("alice", "POST", "/api/jobs", call)).status_code == 202
    await register_sessions(jobs.store, "host-1")
    requests = [LaneRequest("default", ("call",), 1)]
    (run,) = await jobs.manager.claim("host-1", uuid4(), requests, lease=timedelta(minutes=1))
    await jobs.manager.settle([Ending(run, classify(Throttled(after=3600)))])
    (gate,) = (await ask("system", "GET", "/api/gates")).json()["items"]
    assert (gate["closed"], gate["throttled"], gate["opensAt"] is None) == (True, True, False)


async def test_groups_that_wait_or_run_are_listed_page_by_page(ask: Asker, jobs: Gantline) -> None:
    for account in ("7", "7", "8"):
        await ask(
            "alice", "POST", "/api/jobs", {"jobType": "mail-shot", "payload": {"account": account}}
        )
    found: dict[str, tuple[int, int]] = {}
    cursor: str | None = ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        page = (await ask("viewer", "GET", f"/api/limits/mail-shot/groups?limit=1{more}")).json()
        found |= {item["group"]: (item["waiting"], item["running"]) for item in page["items"]}
        cursor = page["nextCursor"]
    assert found == {"7": (2, 0), "8": (1, 0)}
    other = await ask("eve", "GET", "/api/limits/mail-shot/groups")
    assert other.status_code == 403 or other.json()["items"] == []
