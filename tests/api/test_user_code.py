"""Code of the user's own that takes long stops no other request."""

import asyncio
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gantline import Gantline, JobDefaults
from gantline.api import ApiSettings, user_code
from gantline.api.function_authorizer import FunctionAuthorizer
from gantline.api.user_code import UserCode
from gantline.auth.action import Action
from gantline.auth.authorizer import DefaultAuthorizer, Target
from gantline.auth.principal import Principal
from gantline.runtime import monotonic
from tests.api.application import ByName
from tests.api.conftest import Asker, asker_of
from tests.servers.api import BY_GANTLINE, REPOSITORY, ApiProcess

GREET = {"jobType": "greet", "payload": "ada"}


class Slow:
    """A function that is quick, until it is told to wait for the end of the test."""

    def __init__(self) -> None:
        self.waits = False
        self.begun = threading.Semaphore(0)
        self.end = threading.Event()
        self.threads: list[str] = []

    def __call__(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.begun.release()
        if self.waits:
            self.end.wait(30)


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.end.set()


@asynccontextmanager
async def asking(
    slow: Slow, *, limit: float = 30.0, slow_seconds: float = 1e-9, **options: Any
) -> AsyncIterator[Asker]:
    """With hardly any time on the loop, each function is in a thread from its second call on."""
    jobs = Gantline("memory://")

    def subject(name: str) -> str:
        slow()
        return name

    @jobs.job("greet", subject=subject)
    async def greet(name: str) -> None: ...

    @jobs.job("other")
    async def other() -> None: ...

    settings = ApiSettings(slow_code_seconds=slow_seconds, code_timeout_seconds=limit)
    async with (
        jobs,
        asker_of(jobs.api(authenticator=ByName(), settings=settings, **options)) as ask,
    ):
        yield ask


async def begun(slow: Slow) -> None:
    await asyncio.to_thread(slow.begun.acquire, timeout=30)


async def test_a_slow_function_is_named_once_and_goes_to_a_thread(
    slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(slow) as ask:
        for _ in range(3):
            assert (await ask("alice", "POST", "/api/jobs", GREET)).status_code == 202
    main = threading.current_thread().name
    assert [name == main for name in slow.threads] == [True, False, False]
    told = [record.getMessage() for record in caplog.records if "took" in record.getMessage()]
    assert len(told) == 1
    assert "asking.<locals>.greet" in told[0]


async def test_a_quick_function_stays_where_it_is(
    slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(slow, slow_seconds=30.0) as ask:
        for _ in range(3):
            assert (await ask("alice", "POST", "/api/jobs", GREET)).status_code == 202
    assert set(slow.threads) == {threading.current_thread().name}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class Stopwatch:
    """The monotonic clock of calls: each takes as long as the test says."""

    def __init__(self, *seconds: float) -> None:
        self._now = 0.0
        self._steps = iter([step for one in seconds for step in (0.0, one)])

    def __call__(self) -> float:
        self._now += next(self._steps)
        return self._now


@pytest.mark.parametrize(
    ("seconds", "is_slow"),
    [
        ((0.09,), False),  # its process may have had to wait
        ((0.11,), True),
        ((0.06, 0.06), True),
        ((0.06, *[0.0] * 5, 0.06), False),
        ((0.06, *[0.0] * 5, 0.06, 0.06), True),
        ((0.09, *[0.0] * 50, 0.09), False),
    ],
)
async def test_a_function_is_slow_if_it_was_so_repeatedly_or_very(
    seconds: tuple[float, ...], is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "monotonic", Stopwatch(*seconds))
    code = UserCode(slow_seconds=0.05, timeout_seconds=5.0)
    threads: list[str] = []

    def function() -> None:
        threads.append(threading.current_thread().name)

    for _ in seconds:
        await code.call(function, name="it", tenant_id="a")
    assert set(threads) == {threading.current_thread().name}
    if is_slow:
        await code.call(function, name="it", tenant_id="a")
        assert threads[-1] != threading.current_thread().name
    else:
        monkeypatch.undo()
        await code.call(function, name="it", tenant_id="a")
        assert threads[-1] == threading.current_thread().name
    await code.close()


async def test_others_go_on_while_a_function_takes_long(slow: Slow) -> None:
    async with asking(slow) as ask:
        await ask("alice", "POST", "/api/jobs", GREET)
        await begun(slow)
        slow.waits = True
        waiting = asyncio.create_task(ask("alice", "POST", "/api/jobs", GREET))
        await begun(slow)
        assert (await ask("alice", "POST", "/api/jobs", {"jobType": "other"})).status_code == 202
        slow.waits = False
        assert (await ask("eve", "POST", "/api/jobs", GREET)).status_code == 202
        slow.end.set()
        assert (await waiting).status_code == 202


async def test_a_function_that_does_not_return_holds_up_its_tenant_alone(
    slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(slow, limit=0.1) as ask:
        await ask("alice", "POST", "/api/jobs", GREET)
        slow.waits = True
        for _ in range(2):
            response = await ask("alice", "POST", "/api/jobs", GREET)
            assert (response.status_code, response.json()["errorCode"]) == (503, "REQUEST_TIMEOUT")
        assert len(slow.threads) == 2, "the second one has not begun: one of a tenant at a time"
        slow.waits = False
        assert (await ask("eve", "POST", "/api/jobs", GREET)).status_code == 202
    assert "has not returned within 0.1 s" in caplog.text


async def test_with_no_time_on_the_loop_not_even_the_first_call_holds_up_others(
    slow: Slow,
) -> None:
    slow.waits = True
    async with asking(slow, limit=0.1, slow_seconds=0.0) as ask:
        response = await ask("alice", "POST", "/api/jobs", GREET)
        assert (response.status_code, response.json()["errorCode"]) == (503, "REQUEST_TIMEOUT")
        slow.waits = False
        assert (await ask("eve", "POST", "/api/jobs", GREET)).status_code == 202


async def ready(ask: Asker) -> dict[str, Any]:
    """What /readyz says of the code; it answers 200 whatever becomes of that."""
    response = await ask._client.get("/readyz")
    assert response.status_code == 200, response.text
    said: dict[str, Any] = response.json()["checks"]["code"]
    return said


STUCK = {"ok": True, "message": "Code of the application has not returned; the log names it."}


@asynccontextmanager
async def asking_all(slow: Slow, function: str) -> AsyncIterator[Asker]:
    """With all that a user can write, of which this one is slow."""

    def call(name: str) -> None:
        if name == function:
            slow()

    def check(job_type: str, payload: object) -> None:
        call("check")

    def subject(name: str) -> str:
        call("subject")
        return name

    def key(name: str) -> str:
        call("key")
        return ""

    def may(principal: Principal, action: Action, target: Target) -> bool:
        call("may")
        return True

    jobs = Gantline("memory://", defaults=JobDefaults(payload_check=check))

    @jobs.job("greet", subject=subject, idempotency_key=key)
    async def greet(name: str) -> None: ...

    api = jobs.api(
        authenticator=ByName(),
        authorizer=FunctionAuthorizer(may),
        settings=ApiSettings(slow_code_seconds=0.0, code_timeout_seconds=0.1),
    )
    async with jobs, asker_of(api) as ask:
        yield ask


@pytest.mark.parametrize("function", ["check", "subject", "key", "may"])
async def test_code_that_never_returns_is_told_by_readiness_and_named_in_the_log(
    slow: Slow, function: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking_all(slow, function) as ask:
        assert await ready(ask) == {"ok": True}
        slow.waits = True
        response = await ask("alice", "POST", "/api/jobs", GREET)
        assert response.json()["errorCode"] == "REQUEST_TIMEOUT"
        assert await ready(ask) == STUCK
        assert re.search(rf"stands at {re.escape(__file__)}:\d+, in Slow.__call__", caplog.text)
        slow.waits = False
        assert (await ask("eve", "POST", "/api/jobs", GREET)).status_code == 202
        later = monotonic() + 3600
        monkeypatch.setattr(user_code, "monotonic", lambda: later)
        assert await ready(ask) == STUCK, "as long as it goes on"
        slow.end.set()
        assert (await ask("alice", "POST", "/api/jobs", GREET)).status_code == 202
        assert await ready(ask) == {"ok": True}


async def test_an_authorizer_that_is_async_and_never_returns_is_told_for_a_moment(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(slow, limit=0.1, authorizer=Never()) as ask:
        await ask("bob", "POST", "/api/jobs", GREET)
        assert await ready(ask) == STUCK
        assert (await ask("eve", "POST", "/api/jobs", GREET)).status_code == 202
        later = monotonic() + 10
        monkeypatch.setattr(user_code, "monotonic", lambda: later)
        assert await ready(ask) == {"ok": True}


FOREVER = """
import time
from gantline import Gantline, JobDefaults

def check(job_type, payload):
    while payload == "forever":
        time.sleep(0.01)

jobs = Gantline("memory://", defaults=JobDefaults(payload_check=check))

@jobs.job("greet")
async def greet(name: str) -> None: ...
"""


def test_a_first_call_that_never_returns_is_named_although_nothing_else_goes_on(
    tmp_path: Path,
) -> None:
    """As the page says: it is called on the loop, so /readyz does not answer either."""
    (tmp_path / "waiting_app.py").write_text(FOREVER, encoding="utf-8")
    paths = f"{REPOSITORY / 'src'}{os.pathsep}{tmp_path}"
    words = (*BY_GANTLINE, "--allow-anonymous")
    process = ApiProcess("waiting_app:jobs", by=words, PYTHONPATH=paths)
    process.start()
    try:
        assert httpx2.get(f"{process.url}/readyz").status_code == 200
        with pytest.raises(httpx2.TimeoutException):
            httpx2.post(f"{process.url}/api/jobs", json={**GREET, "payload": "forever"}, timeout=1)
        with pytest.raises(httpx2.TimeoutException):
            httpx2.get(f"{process.url}/readyz", timeout=2)
        assert re.search(r"blocked for \d.* at .*waiting_app.py:\d+", process.log), process.log
    finally:
        process.close()


async def test_what_a_function_raises_in_a_thread_is_answered_as_ever(slow: Slow) -> None:
    async with asking(slow) as ask:
        await ask("alice", "POST", "/api/jobs", GREET)
        response = await ask("alice", "POST", "/api/jobs", {**GREET, "payload": 5})
        assert (response.status_code, response.json()["errorCode"]) == (422, "VALIDATION_ERROR")


async def test_one_of_a_batch_that_takes_too_long_is_refused_alone(slow: Slow) -> None:
    async with asking(slow, limit=0.1) as ask:
        await ask("alice", "POST", "/api/jobs", GREET)
        slow.waits = True
        body = {"jobs": [GREET, {"jobType": "other"}]}
        batch = (await ask("alice", "POST", "/api/jobs/batch", body)).json()
        assert batch["items"][0]["problem"]["errorCode"] == "REQUEST_TIMEOUT"
        assert batch["accepted"] == 1


async def test_an_authorizer_that_is_a_function_goes_to_a_thread_too(slow: Slow) -> None:
    def may(principal: Principal, action: Action, target: Target) -> bool:
        slow()
        return principal.id != "user:bob"

    async with asking(Slow(), limit=0.1, authorizer=FunctionAuthorizer(may)) as ask:
        assert (await ask("alice", "POST", "/api/jobs", GREET)).status_code == 202
        assert (await ask("bob", "POST", "/api/jobs", GREET)).status_code == 403
        slow.waits = True
        response = await ask("alice", "POST", "/api/jobs", GREET)
        assert (response.status_code, response.json()["errorCode"]) == (503, "REQUEST_TIMEOUT")


class Never(DefaultAuthorizer):
    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        if principal.id == "user:bob":
            await asyncio.Event().wait()
        return await super().may(principal, action, target)


class NeverByItself:
    """The same, not made of ours."""

    def __init__(self) -> None:
        self._never = Never()
        self.scope = self._never.scope

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        return await self._never.may(principal, action, target)


@pytest.mark.parametrize("authorizer", [Never(), NeverByItself()], ids=["derived", "own"])
async def test_an_authorizer_that_is_async_has_a_time_limit(
    slow: Slow, authorizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(slow, limit=0.1, authorizer=authorizer) as ask:
        assert (await ask("alice", "POST", "/api/jobs", GREET)).status_code == 202
        response = await ask("bob", "POST", "/api/jobs", GREET)
        assert (response.status_code, response.json()["errorCode"]) == (503, "REQUEST_TIMEOUT")
    assert f"{type(authorizer).__name__}.may has not returned" in caplog.text
