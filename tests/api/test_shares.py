"""Shares: what one principal or tenant does at once takes nothing that others need."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.api.problems import Refused
from gantline.api.shares import Holder, Share, Shares, Turns
from gantline.auth.authenticator import Credentials
from gantline.auth.principal import Principal
from gantline.testing.clock import FakeClock
from tests.api.application import PRINCIPALS, ByName
from tests.api.conftest import Asker, asker_of, check_answer
from tests.api.playing import stored
from tests.api.test_submit import DOCUMENT, MAIL
from tests.api.test_waiting import Submitted

ALICE, BOB, EVE = (Holder.of(PRINCIPALS[name]) for name in ("alice", "bob", "eve"))
SMALL = Share(of_principal=1, of_tenant=2, in_process=3)
LIST = ("GET", "/api/jobs")
STATUS = ("GET", f"/api/jobs/{uuid4()}/status")


def asking(jobs: Gantline, **settings: Any) -> asker_of:
    return asker_of(jobs.api(authenticator=ByName(), settings=ApiSettings(**settings)))


def refusal(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["errorCode"]


# -- counting -------------------------------------------------------------------------------------


async def test_a_principal_a_tenant_and_a_process_have_so_many_and_no_more() -> None:
    shares = Shares(SMALL, "things")

    def code(holder: Holder) -> str | None:
        try:
            shares.take(holder)
        except Refused as refused:
            return refused.kind.code
        return None

    another = Holder("acme", "user:carol")
    assert [code(ALICE), code(ALICE)] == [None, "TOO_MANY_AT_ONCE"], "his own"
    assert [code(BOB), code(another)] == [None, "TOO_MANY_AT_ONCE"], "his tenant's"
    assert [code(EVE), code(Holder("third", "x"))] == [None, "OVERLOADED"], "all of the process"
    shares.give_back(BOB)
    assert code(another) is None
    assert code(BOB) == "TOO_MANY_AT_ONCE"


async def test_what_was_given_back_leaves_nothing_behind() -> None:
    shares = Shares(SMALL, "things")
    for _ in range(3):
        for holder in (ALICE, EVE, Holder.unknown("10.0.0.1")):
            with shares.taken(holder):
                pass
    assert shares._counts == {}


async def test_who_is_not_known_is_counted_by_his_address() -> None:
    shares = Shares(SMALL, "things")
    for _ in range(2):
        shares.take(Holder.unknown("10.0.0.1"))
    with pytest.raises(Refused):
        shares.take(Holder.unknown("10.0.0.1"))
    shares.take(Holder.unknown("10.0.0.2"))


# -- requests under way ---------------------------------------------------------------------------


@asynccontextmanager
async def held_up(jobs: Gantline, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["HeldUp"]:
    """The store answers questions about jobs when the block has ended."""
    held = HeldUp(jobs.store.get)
    monkeypatch.setattr(jobs.store, "get", held)
    try:
        yield held
    finally:
        held.end.set()


class HeldUp:
    def __init__(self, get: Callable[..., Awaitable[Any]]) -> None:
        self._get = get
        self._calls = asyncio.Semaphore(0)
        self.end = asyncio.Event()

    async def __call__(self, *args: Any, **options: Any) -> Any:
        self._calls.release()
        await self.end.wait()
        return await self._get(*args, **options)

    async def called(self) -> None:
        async with asyncio.timeout(10):
            await self._calls.acquire()


async def test_requests_of_one_tenant_under_way_leave_room_for_others(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(jobs, requests=SMALL) as ask, held_up(jobs, monkeypatch) as held:
        waiting = [asyncio.create_task(ask(who, *STATUS)) for who in ("alice", "bob")]
        for _ in waiting:
            await held.called()
        own = await ask("alice", *LIST)
        assert refusal(own) == (429, "TOO_MANY_AT_ONCE")
        assert own.headers["retry-after"] == "1"
        assert refusal(await ask("viewer", *LIST)) == (429, "TOO_MANY_AT_ONCE")
        assert (await ask("eve", *LIST)).status_code == 200
        held.end.set()
        assert [one.status_code for one in await asyncio.gather(*waiting)] == [404, 404]
        assert (await ask("alice", *LIST)).status_code == 200


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/no-id/status", "/nowhere"])
async def test_every_request_gives_back_what_it_took(jobs: Gantline, path: str) -> None:
    one = Share(of_principal=1, of_tenant=1, in_process=1)
    async with asking(jobs, requests=one, bodies=one) as ask:
        for who in ("alice", "eve", None, "nobody") * 2:
            response = await ask(who, "POST", path, content=b"{")
            assert response.status_code in (400, 401, 404, 405)


async def test_readiness_tells_of_a_process_that_refuses_everybody(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ready() -> tuple[int, Any]:
        response = await ask._client.get("/readyz")
        return response.status_code, response.json()["checks"]["load"]

    one = Share(of_principal=2, of_tenant=2, in_process=1)
    async with asking(jobs, requests=one) as ask, held_up(jobs, monkeypatch) as held:
        assert await ready() == (200, {"ok": True})
        waiting = asyncio.create_task(ask("alice", *STATUS))
        await held.called()
        message = "Too many requests are under way."
        assert await ready() == (503, {"ok": False, "message": message})
        held.end.set()
        await waiting
        assert await ready() == (200, {"ok": True}), "nobody was refused"


async def test_what_one_tenant_may_not_does_not_make_the_process_unready(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(jobs, requests=SMALL) as ask, held_up(jobs, monkeypatch) as held:
        waiting = asyncio.create_task(ask("alice", *STATUS))
        await held.called()
        assert (await ask("alice", *LIST)).status_code == 429
        assert (await ask._client.get("/readyz")).status_code == 200
        held.end.set()
        await waiting


# -- bodies ---------------------------------------------------------------------------------------


class SlowBody:
    """A body of which a part comes when the test says so."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.begun = asyncio.Event()

    def send(self, part: bytes) -> None:
        self._parts.put_nowait(part)

    def end(self) -> None:
        self._parts.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.begun.set()
        while (part := await self._parts.get()) is not None:
            yield part

    async def post(self, ask: Asker, who: str) -> httpx2.Response:
        headers = {"authorization": f"Bearer {who}", "content-type": "application/json"}
        response = await ask._client.post("/api/jobs", content=aiter(self), headers=headers)
        check_answer(response)
        return response


async def test_bodies_that_are_half_sent_are_a_share_of_their_own(jobs: Gantline) -> None:
    async with asking(jobs, bodies=SMALL) as ask:
        slow = SlowBody()
        sending = asyncio.create_task(slow.post(ask, "alice"))
        await slow.begun.wait()
        assert refusal(await ask("alice", "POST", "/api/jobs", MAIL)) == (429, "TOO_MANY_AT_ONCE")
        assert (await ask("alice", *LIST)).status_code == 200, "what has no body goes on"
        assert (await ask("eve", "POST", "/api/jobs", DOCUMENT)).status_code == 202
        slow.send(b'{"jobType":"sweep"}')
        slow.end()
        assert (await sending).status_code == 202
        assert (await ask("alice", "POST", "/api/jobs", MAIL)).status_code == 202


async def test_a_body_of_which_nothing_more_comes_is_given_up(jobs: Gantline) -> None:
    async with asking(jobs, body_stall_seconds=0.05) as ask:
        slow = SlowBody()
        slow.send(b"{")
        async with asyncio.timeout(10):
            assert refusal(await slow.post(ask, "alice")) == (408, "BODY_TIMEOUT")


async def test_a_body_that_comes_on_and_on_is_given_up_too(jobs: Gantline) -> None:
    async with asking(jobs, body_stall_seconds=5.0, body_seconds=0.2) as ask:
        slow = SlowBody()
        sending = asyncio.create_task(slow.post(ask, "alice"))
        async with asyncio.timeout(10):
            while not sending.done():
                slow.send(b" ")
                await asyncio.wait({sending}, timeout=0.01)
        assert refusal(sending.result()) == (408, "BODY_TIMEOUT")


async def test_a_body_that_comes_slowly_but_steadily_is_read(jobs: Gantline) -> None:
    async with asking(jobs, body_stall_seconds=0.5) as ask:
        slow = SlowBody()
        sending = asyncio.create_task(slow.post(ask, "alice"))
        for part in (b'{"jobType":', b'"sweep"', b"}"):
            await asyncio.wait({sending}, timeout=0.25)
            slow.send(part)
        slow.end()
        assert (await sending).status_code == 202, "it took longer than nothing may come"


async def test_how_long_a_body_took_is_not_taken_from_what_comes_after_it(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asking(jobs, body_stall_seconds=0.05, body_seconds=0.05) as ask,
        held_up(jobs, monkeypatch) as held,
    ):
        posting = asyncio.create_task(
            ask("operator", "POST", f"/api/jobs/{uuid4()}/edited-redrive", {"payload": None})
        )
        await held.called()
        await asyncio.wait({posting}, timeout=0.3)
        held.end.set()
        assert (await posting).status_code == 404


# -- waits ----------------------------------------------------------------------------------------


async def test_waits_of_one_tenant_leave_others_to_wait(jobs: Gantline) -> None:
    submitted = Submitted(jobs)
    async with asking(jobs, waits=SMALL) as ask:
        first = asyncio.create_task(
            ask("alice", "POST", "/api/jobs", MAIL, headers={"prefer": "wait=30"})
        )
        await submitted.wait()
        second = await ask("alice", "POST", "/api/jobs", DOCUMENT, headers={"prefer": "wait=30"})
        assert second.status_code == 202, "it does not wait"
        submitted.clear()
        others = asyncio.create_task(
            ask("eve", "POST", "/api/jobs", DOCUMENT, headers={"prefer": "wait=30"})
        )
        await submitted.wait()
        for job in await stored(jobs):
            who = "eve" if job.job.tenant_id == "evil" else "alice"
            await ask(who, "POST", f"/api/jobs/{job.job.job_id}/cancel")
        assert [one.status_code for one in await asyncio.gather(first, others)] == [200, 200]


# -- turns ----------------------------------------------------------------------------------------


async def test_turns_are_taken_in_order_and_by_each_tenant_for_itself() -> None:
    turns, order = Turns(1), list[str]()

    async def take(tenant: str, name: str) -> None:
        async with turns.of(tenant):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.timeout(10):
        await asyncio.gather(*(take("a", f"a{n}") for n in range(3)), take("b", "b0"))
    assert order == ["a0", "b0", "a1", "a2"]


async def test_who_gives_up_waiting_for_a_turn_holds_nobody_up() -> None:
    turns = Turns(1)
    await turns.take("a")
    waiting = [asyncio.create_task(turns.take("a")) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})
    turns.give_back("a")
    async with asyncio.timeout(10):
        await waiting[1]
    turns.give_back("a")
    await turns.take("a")


async def test_who_is_given_a_turn_and_gives_up_at_once_gives_it_back() -> None:
    turns = Turns(1)
    await turns.take("a")
    waiting = [asyncio.create_task(turns.take("a")) for _ in range(2)]
    await asyncio.sleep(0)
    turns.give_back("a")
    waiting[0].cancel()
    async with asyncio.timeout(10):
        await waiting[1]


async def test_beside_others_a_tenant_has_fewer_turns_and_all_when_they_have_left() -> None:
    clock = FakeClock()
    turns = Turns(3, beside_others=1, monotonic=clock.monotonic)
    for _ in range(3):
        await turns.take("a")
    async with turns.of("b"):
        waiting = [asyncio.create_task(turns.take("a")) for _ in range(3)]
        await asyncio.sleep(0)
    turns.give_back("a")
    turns.give_back("a")
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [False] * 3, "one goes on; b was here a moment ago"
    turns.give_back("a")
    await waiting[0]
    clock.advance(1.5)
    async with asyncio.timeout(10):
        another = asyncio.create_task(turns.take("a"))
        await asyncio.sleep(0)
        turns.give_back("a")
        await asyncio.gather(*waiting, another)
    assert [*turns._lines] == ["a"], "who has left is forgotten"


async def test_requests_of_one_tenant_wait_for_each_other_and_nobody_for_them(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(jobs, turns=1, long_turns=1) as ask, held_up(jobs, monkeypatch) as held:
        first = asyncio.create_task(ask("alice", *STATUS))
        await held.called()
        second = asyncio.create_task(ask("alice", "POST", "/api/jobs", DOCUMENT))
        assert (await ask("eve", "POST", "/api/jobs", DOCUMENT)).status_code == 202
        assert (await ask("alice", *LIST)).status_code == 200, "what is long has other turns"
        await asyncio.wait({second}, timeout=0.3)
        assert not second.done()
        held.end.set()
        assert (await first).status_code == 404
        assert (await second).status_code == 202


async def test_of_many_who_come_from_one_address_a_few_are_identified_at_a_time(
    jobs: Gantline,
) -> None:
    asked, most, end = list[str](), 0, asyncio.Event()

    class Slowly(ByName):
        async def authenticate(self, credentials: Credentials) -> Principal | None:
            nonlocal most
            asked.append(credentials.client)
            most = max(most, len(asked))
            if credentials.client == "127.0.0.1":
                await end.wait()
            asked.remove(credentials.client)
            return await super().authenticate(credentials)

    api = jobs.api(authenticator=Slowly())
    elsewhere = httpx2.ASGITransport(app=api, client=("10.0.0.1", 1))
    async with (
        asker_of(api) as ask,
        httpx2.AsyncClient(transport=elsewhere, base_url="http://api.test") as other,
    ):
        many = [asyncio.create_task(ask("eve", *LIST)) for _ in range(50)]
        await asyncio.wait(many, timeout=0.1)
        response = await other.get("/api/jobs", headers={"authorization": "Bearer alice"})
        assert response.status_code == 200
        assert most <= 17
        end.set()
        assert {one.status_code for one in await asyncio.gather(*many)} == {200}


async def test_what_is_about_many_things_does_not_hold_up_what_is_about_one(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, end = asyncio.Event(), asyncio.Event()
    find = jobs.store.find

    async def found(*args: Any, **options: Any) -> Any:
        going.set()
        await end.wait()
        return await find(*args, **options)

    monkeypatch.setattr(jobs.store, "find", found)
    async with asking(jobs, long_turns=1) as ask:
        lists = [asyncio.create_task(ask("alice", *LIST)) for _ in range(3)]
        await going.wait()
        assert (await ask("alice", "POST", "/api/jobs", DOCUMENT)).status_code == 202
        end.set()
        assert {one.status_code for one in await asyncio.gather(*lists)} == {200}


async def test_who_waits_for_a_job_does_not_keep_his_turn(jobs: Gantline) -> None:
    submitted = Submitted(jobs)
    async with asking(jobs, turns=1) as ask:
        waiting = asyncio.create_task(
            ask("alice", "POST", "/api/jobs", DOCUMENT, headers={"prefer": "wait=30"})
        )
        await submitted.wait()
        (job,) = await stored(jobs)
        cancelled = await ask("alice", "POST", f"/api/jobs/{job.job.job_id}/cancel")
        assert cancelled.status_code == 200
        assert (await waiting).status_code == 200


async def test_a_batch_gives_way_to_what_comes_meanwhile(jobs: Gantline) -> None:
    async with asking(jobs) as ask:
        body = {"jobs": [{"jobType": "sweep"} for _ in range(1000)]}
        batch = asyncio.create_task(ask("alice", "POST", "/api/jobs/batch", body))
        await asyncio.sleep(0)
        assert (await ask("eve", *STATUS)).status_code == 404
        assert not batch.done()
        assert (await batch).json()["accepted"] == 1000
