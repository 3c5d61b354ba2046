"""The rights matrix: every operation and page, by every kind of caller, on every store.

What is expected comes from the table of docs/authentication.md and the rights of docs/openapi.json,
not from the code. An operation without a row in WALKS fails.
"""

import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import httpx2
import msgspec
import pytest
from starlette.routing import Mount, Route, Router

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.api.application import Api
from gantline.auth import ApiKeyAuthenticator, ApiKeys
from gantline.auth.action import Action
from gantline.auth.api_key import KeyGrant, new_key_id, new_key_text
from gantline.auth.api_keys import USES
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Role
from gantline.auth.stream_tokens import StreamTokens
from gantline.contract.outcome import ErrorInfo, Failure
from gantline.contract.stored import Part, StoredRecord
from gantline.manager.sequencer import number_events
from gantline.moving.comparing import read_pages
from gantline.testing.clock import FakeClock
from gantline.webhooks.delivery import AttemptResult
from tests.api.application import AuditKept, make_jobs
from tests.api.conftest import asker_of
from tests.api.playing import PERMANENT, run_all
from tests.api.rights_table import (
    JOB_TYPE,
    KNOWN,
    TENANT,
    UNKNOWN,
    Caller,
    Rights,
    narrowed,
    read_table,
)
from tests.api.rights_walks import (
    DAILY,
    DOCUMENTED,
    MARK,
    PAYLOAD_MARK,
    URL,
    WALKS,
    group_of,
    right_of,
)
from tests.api.streams.event_stream import listening_to

RIGHTS: Final = Rights(read_table())
GROUPS: Final = sorted({group_of(name) for name in WALKS})
OWNER, ADMIN = (next(one for one in KNOWN if one.name == name) for name in ("owner", "admin"))
UNDELIVERED: Final = Failure(
    ErrorInfo("REFUSED", "404", AttemptResult(http_status=404, latency_seconds=0.1).text()),
    retryable=False,
)


class Things(msgspec.Struct):
    """What acme has; each caller finds it as it was made."""

    queued: str
    dead: str
    webhook: str
    delivery: str
    schedule: str = "nightly"

    @classmethod
    def unknown(cls) -> "Things":
        queued, dead, webhook, delivery = (str(uuid4()) for _ in range(4))
        return cls(queued, dead, webhook, delivery, schedule="unheard-of")

    def values(self, name: str) -> dict[str, str]:
        """Of the parameters of a path."""
        wants_dead = name in ("redriveJob", "redriveEdited", "deleteJob", "getDeadLetter")
        return {
            "jobId": self.dead if wants_dead else self.queued,
            "webhookId": self.webhook,
            "deliveryId": self.delivery,
            "schedule": self.schedule,
            "queue": "documents",
            "jobType": JOB_TYPE,
            "problem": "not-found",
        }

    def masked(self, text: str) -> str:
        for one in (self.queued, self.dead, self.webhook, self.delivery, self.schedule):
            text = text.replace(one, "IT")
        return text


class Desk:
    """An API with real keys over one store; it makes acme's things, and asks for them."""

    def __init__(self, jobs: Gantline, clock: FakeClock) -> None:
        peppers = Peppers.random()
        self.jobs = jobs
        self.audit = AuditKept()
        self.keys = ApiKeys(jobs.store, peppers, clock=clock)
        self.api = jobs.api(
            authenticator=ApiKeyAuthenticator(self.keys),
            audit=self.audit,
            stream_tokens=StreamTokens(peppers, clock=clock),
            settings=ApiSettings(show_metrics=True, show_start_page=True),
        )
        self._clock = clock
        self._texts: dict[str, str | None] = {}
        self._ids: dict[str, str] = {}
        self.things = Things.unknown()
        self.before: list[bytes] = []
        """What was kept before a request; empty where that must be read again."""

    def app(self) -> Any:
        index = self.jobs.find_type(JOB_TYPE)
        assert index is not None
        return Router([self.api.enqueue("/own", index), Mount("/", self.api)])

    # -- who asks ---------------------------------------------------------------------------------

    async def issue_lost_keys(self) -> None:
        """Keys that are good for nothing: each would have been an admin's."""
        everything = KeyGrant(name="lost", tenant_id=TENANT, roles=frozenset({Role.ADMIN}))
        wrong = await self.keys.create(everything)
        expired = await self.keys.create(everything, lifetime=timedelta(seconds=1))
        revoked = await self.keys.create(everything)
        await self.keys.revoke(revoked.key.id, tenant_id=TENANT)
        self._clock.advance(timedelta(seconds=2))
        self._texts |= {
            "nobody": None,
            "no key": "letmein",
            "unknown key": new_key_text(new_key_id()).text,
            "wrong secret": new_key_text(wrong.key.id).text,
            "expired key": expired.text,
            "revoked key": revoked.text,
        }

    async def key_of(self, who: Caller) -> str | None:
        if who.name not in self._texts:
            assert who.grant is not None
            issued = await self.keys.create(who.grant)
            self._texts[who.name] = issued.text
            self._ids[who.name] = issued.key.id
            self.before = []
        return self._texts[who.name]

    # -- what there is ----------------------------------------------------------------------------

    async def make_things(self) -> None:
        webhooks = self.jobs.webhooks
        assert webhooks is not None
        await self.jobs.switches.disable_type(JOB_TYPE, disabled=False)
        for one in await webhooks.listed(tenant_id=TENANT):
            await webhooks.delete(one.webhook_id, tenant_id=TENANT)
        owner, admin = await self.key_of(OWNER), await self.key_of(ADMIN)
        async with asker_of(self.app()) as ask:
            await ask(admin, "DELETE", "/api/schedules/nightly")
            nightly = {**DAILY, "name": "nightly", "subjectId": MARK}
            await ask(admin, "POST", "/api/schedules", nightly)
            made = await ask(admin, "POST", "/api/webhooks", {"url": f"{URL}/{MARK}"})
            webhook = made.json()["webhook"]["webhookId"]
            sent = await ask(admin, "POST", f"/api/webhooks/{webhook}/test")
            await run_all(self.jobs, UNDELIVERED)
            ids = []
            for _ in range(2):
                document = {"documentId": str(uuid4()), "flags": [PAYLOAD_MARK]}
                body = {"jobType": JOB_TYPE, "subjectId": MARK, "payload": document}
                ids.append((await ask(owner, "POST", "/api/jobs", body)).json()["jobId"])
                if len(ids) == 1:
                    await run_all(self.jobs, PERMANENT)
        dead, queued = ids
        self.things = Things(queued, dead, webhook, sent.json()["deliveryId"])

    async def kept(self) -> list[bytes]:
        """All that is in the store, but for when keys were used."""
        await number_events(self.jobs.store)
        items = [
            msgspec.json.encode(item)
            for part in (Part.JOBS, Part.KEYS, Part.RECORDS)
            async for items in read_pages(self.jobs.store, part, 1000)
            for item in items
            if not (isinstance(item, StoredRecord) and item.record.namespace == USES)
        ]
        return sorted(items)

    # -- asking -----------------------------------------------------------------------------------

    async def ask(
        self, who: Caller, name: str, things: Things, *, named: str | None, method: str = ""
    ) -> httpx2.Response:
        walk = WALKS[name]
        documented = DOCUMENTED.get(name)
        asked, path = documented[:2] if documented else (walk.method, walk.path)
        values = things.values(name)
        path = re.sub(r"\{(\w+)\}", lambda match: values[match[1]], path)
        text = json.dumps(walk.body).replace("{new}", str(uuid4())).replace("{dead}", things.dead)
        body = json.loads(text)
        match named and walk.names_tenant:
            case "query":
                path += f"?tenantId={named}"
            case "body":
                body["tenantId"] = named
            case "items":
                body["jobs"][0]["tenantId"] = named
        key = await self.key_of(who)
        if name in ("followJob", "followJobs"):
            return await self._followed(key, path)
        async with asker_of(self.app()) as ask:
            if group_of(name) == "pages" and walk.about == "open":
                return await ask._client.get(path)
            return await ask(key, method or asked, path, body)

    async def _followed(self, key: str | None, path: str) -> httpx2.Response:
        """The beginning of an answer that goes on."""
        async with listening_to(self.app()) as listen:
            stream = await listen(key, path)
        return httpx2.Response(stream.status, headers=stream.headers, content=stream.body)


@pytest.fixture
async def desk(store_url: str) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with make_jobs(store_url, clock) as jobs:
        desk = Desk(jobs, clock)
        await desk.issue_lost_keys()
        await desk.make_things()
        yield desk


def expected(who: Caller, name: str, *, named: bool) -> int:
    """401, 403, 404, or 200 for anything that is done."""
    walk, right = WALKS[name], right_of(name)
    if right is None:
        return 200
    if who.grant is None:
        return 401
    home = who.grant.tenant_id
    asked = TENANT if named else home
    has_type = who.grant.job_types is None
    needed = (right, *walk.also)
    if walk.about == "job":
        if who.is_foreign:
            return 404
        return 200 if all(RIGHTS.to_the_job(who, one) for one in needed) else 403
    if walk.about == "installation":
        return 200 if RIGHTS.at_all_of(who, right, home) and has_type else 403
    if named and who.is_foreign:
        return 404
    if walk.about == "jobs":
        may = RIGHTS.at_home(who, right) if asked == home else False
        return 200 if may or RIGHTS.at_all_of(who, right, asked) else 403
    shown_by_type = name.startswith("list") or group_of(name) in ("statistics", "dead letters")
    shown_by_type = shown_by_type and not walk.names_type
    if not has_type and not (shown_by_type and group_of(name) != "webhooks"):
        return 403
    if walk.about == "within" and asked != TENANT:
        return 404 if RIGHTS.at_all_of(who, right, asked) else 403
    return 200 if all(RIGHTS.at_all_of(who, one, asked) for one in needed) else 403


def status_of(response: httpx2.Response, name: str) -> int:
    """A batch answers row by row; and all that is done is one thing here."""
    if name == "submitBatch" and response.status_code == 202:
        (item,) = response.json()["items"]
        return 200 if item["problem"] is None else int(item["problem"]["status"])
    return 200 if response.status_code < 300 else response.status_code


def may_see(who: Caller, name: str, *, named: bool) -> bool:
    """Whether something of acme's may be in an answer that is no refusal."""
    walk, right = WALKS[name], right_of(name)
    if right is None or name in ("listJobTypes", "getJobType"):
        return who.grant is not None and who.grant.job_types is None
    assert who.grant is not None
    if walk.about in ("job", "jobs"):
        return RIGHTS.to_the_job(who, right) and (who.grant.tenant_id == TENANT or named)
    return (named or who.grant.tenant_id == TENANT) and who.grant.job_types is None


def comparable(response: httpx2.Response, things: Things, named: str | None) -> tuple[Any, ...]:
    """An answer without what differs by what was asked for."""
    text = things.masked(response.text)
    text = text.replace(response.headers["x-correlation-id"], "CORRELATION")
    if named:
        text = text.replace(named, "TENANT")
    return response.status_code, sorted(response.headers), text


def test_every_operation_and_every_page_is_walked() -> None:
    jobs = Gantline("memory://")
    api: Api = jobs.api(
        allow_anonymous=True, settings=ApiSettings(show_metrics=True, show_start_page=True)
    )
    served = {one.name for one in api.operations}
    paths = {one.path for one in api.operations}
    pages = {one.path for one in api.routes if isinstance(one, Route)} - paths
    assert set(WALKS) == served | pages | {"async endpoint"}
    assert served == set(DOCUMENTED)


def test_the_table_tells_every_right() -> None:
    assert set(read_table()) == set(Action)


@pytest.mark.wide
@pytest.mark.parametrize("group", GROUPS)
async def test_everybody_may_do_what_the_table_says_and_nothing_else(
    desk: Desk, group: str
) -> None:
    for name, walk in WALKS.items():
        if group_of(name) != group:
            continue
        right = right_of(name)
        narrow = narrowed(right, walk.also) if right is not None else ()
        for who in (*UNKNOWN, *KNOWN, *narrow):
            for named in (None, TENANT) if walk.names_tenant else (None,):
                await check_one(desk, who, name, named)


async def check_one(desk: Desk, who: Caller, name: str, named: str | None) -> None:
    case = (name, who.name, named)
    await desk.key_of(who)
    before = desk.before = desk.before or await desk.kept()
    desk.audit.entries.clear()
    response = await desk.ask(who, name, desk.things, named=named)
    status = status_of(response, name)
    assert status == expected(who, name, named=bool(named)), (*case, response.text)
    walk, method = WALKS[name], response_method(name)
    is_named = bool(named) or walk.about == "job"
    if status == 200 and walk.shows and right_of(name) is not None:
        is_shown = walk.shows in response.text
        assert is_shown == may_see(who, name, named=is_named), (*case, response.text)
    if PAYLOAD_MARK in response.text:
        assert RIGHTS.to_the_job(who, Action.READ_PAYLOAD), case
    if status == 200 and method != "GET":
        desk.before = []
        if may_change(who, name, named=is_named):
            await desk.make_things()
        return
    assert await desk.kept() == before, case
    if status != 200:
        check_denial(desk, who, case)
    if who.is_foreign and status != 200:
        await check_that_it_is_answered_like_what_is_not_there(desk, who, name, named, response)
    if method == "GET" and name not in ("followJob", "followJobs") and group_of(name) != "pages":
        head = await desk.ask(who, name, desk.things, named=named, method="HEAD")
        assert head.status_code == response.status_code, case


def response_method(name: str) -> str:
    return str(DOCUMENTED[name][0] if name in DOCUMENTED else WALKS[name].method)


def may_change(who: Caller, name: str, *, named: bool) -> bool:
    """Whether acme's things, or what all tenants share, may be other ones now."""
    assert who.grant is not None
    return WALKS[name].about == "installation" or named or who.grant.tenant_id == TENANT


def check_denial(desk: Desk, who: Caller, case: tuple[Any, ...]) -> None:
    denied = [one for one in desk.audit.entries if one.outcome != "allowed"]
    assert len(denied) == 1, (*case, desk.audit.outcomes())
    actor = f"key:{desk._ids[who.name]}" if who.grant is not None else ""
    assert denied[0].actor == actor, case
    assert denied[0].operation == (case[0] if case[0] in DOCUMENTED else denied[0].operation), case


async def check_that_it_is_answered_like_what_is_not_there(
    desk: Desk, who: Caller, name: str, named: str | None, response: httpx2.Response
) -> None:
    unknown, nowhere = Things.unknown(), "nowhere" if named else None
    other = await desk.ask(who, name, unknown, named=nowhere)
    assert comparable(response, desk.things, named) == comparable(other, unknown, nowhere), name
