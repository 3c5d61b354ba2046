"""The asynchronous client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx2

from gantline.client.exchange import Retries
from gantline.client.steps import (
    Answer,
    Feed,
    Flow,
    Give,
    Hear,
    Heard,
    Listen,
    Opened,
    Pause,
    Reply,
    Request,
    Send,
    Unanswered,
)
from gantline.client.verbs import Verbs
from gantline.client.wire import (
    Reading,
    arguments_of,
    is_event_stream,
    setup,
    timeout_of,
    too_slow,
    unanswered,
)
from gantline.contract.clock import Clock, SystemClock

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _run(
    verb: Callable[Concatenate[Verbs, P], Flow[R]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, R]]:
    """A verb to be awaited."""

    @wraps(verb)
    async def run(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._run(verb(self._verbs, *args, **kwargs))

    return run


def _iterate(
    verb: Callable[Concatenate[Verbs, P], Feed[T, None]],
) -> Callable[Concatenate["AsyncClient", P], AsyncGenerator[T, None]]:
    """A verb whose items are iterated over with `async for`."""

    @wraps(verb)
    def iterate(
        self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        return self._iterate(verb(self._verbs, *args, **kwargs))

    return iterate


class AsyncClient:
    """A server's jobs, for programs with an event loop; to be used in one loop.

    >>> async with AsyncClient("https://jobs.example.com", api_key=key) as jobs:
    ...     accepted = await jobs.submit("document-indexing", {"documentId": "d1"})
    ...     status = await jobs.wait(accepted.job_id, timeout=30)

    All else is as with `Client`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        timeout_seconds: float = 30.0,
        retries: Retries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._verbs = Verbs(
            tenant=tenant,
            timeout_seconds=timeout_seconds,
            retries=retries or Retries(),
            clock=clock or SystemClock(),
        )
        chosen = setup(url, api_key)
        self._url = chosen.url
        self._http = httpx2.AsyncClient(transport=transport, **chosen.arguments)

    submit = _run(Verbs.submit)
    submit_and_wait = _run(Verbs.submit_and_wait)
    submit_many = _run(Verbs.submit_many)
    status = _run(Verbs.status)
    job = _run(Verbs.job)
    history = _run(Verbs.history)
    attempts = _run(Verbs.attempts)
    wait = _run(Verbs.wait)
    jobs = _iterate(Verbs.jobs)
    follow = _iterate(Verbs.follow)
    follow_jobs = _iterate(Verbs.follow_jobs)
    cancel = _run(Verbs.cancel)
    redrive = _run(Verbs.redrive)
    redrive_edited = _run(Verbs.redrive_edited)
    delete = _run(Verbs.delete)
    dead_letters = _iterate(Verbs.dead_letters)
    dead_letter = _run(Verbs.dead_letter)
    dead_summary = _run(Verbs.dead_summary)
    redrive_dead_letters = _run(Verbs.redrive_dead_letters)
    queues = _run(Verbs.queues)
    pause_queue = _run(Verbs.pause_queue)
    resume_queue = _run(Verbs.resume_queue)
    cap_queue = _run(Verbs.cap_queue)
    job_types = _run(Verbs.job_types)
    job_type = _run(Verbs.job_type)
    pause_type = _run(Verbs.pause_type)
    resume_type = _run(Verbs.resume_type)
    disable_type = _run(Verbs.disable_type)
    enable_type = _run(Verbs.enable_type)
    audit_events = _iterate(Verbs.audit_events)
    statistics = _run(Verbs.statistics)
    scale = _run(Verbs.scale)
    webhooks = _run(Verbs.webhooks)
    webhook = _run(Verbs.webhook)
    create_webhook = _run(Verbs.create_webhook)
    update_webhook = _run(Verbs.update_webhook)
    delete_webhook = _run(Verbs.delete_webhook)
    rotate_webhook = _run(Verbs.rotate_webhook)
    enable_webhook = _run(Verbs.enable_webhook)
    disable_webhook = _run(Verbs.disable_webhook)
    test_webhook = _run(Verbs.test_webhook)
    deliveries = _iterate(Verbs.deliveries)
    delivery = _run(Verbs.delivery)
    replay_delivery = _run(Verbs.replay_delivery)
    replay_deliveries = _run(Verbs.replay_deliveries)
    schedules = _iterate(Verbs.schedules)
    schedule = _run(Verbs.schedule)
    next_runs = _run(Verbs.next_runs)
    add_schedule = _run(Verbs.add_schedule)
    replace_schedule = _run(Verbs.replace_schedule)
    pause_schedule = _run(Verbs.pause_schedule)
    resume_schedule = _run(Verbs.resume_schedule)
    run_schedule = _run(Verbs.run_schedule)
    delete_schedule = _run(Verbs.delete_schedule)

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient {self._url}>"

    async def _run(self, flow: Flow[R]) -> R:
        answer: Answer = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = await self._do(step)

    async def _iterate(self, feed: Feed[T, None]) -> AsyncGenerator[T, None]:
        answer: Answer = None
        async with _Stream(self) as stream:
            while True:
                try:
                    step = feed.send(answer)
                except StopIteration:
                    return
                match step:
                    case Give():
                        yield step.item
                        answer = None
                    case Listen() | Hear():
                        answer = await stream.do(step)
                    case _:
                        answer = await self._do(step)

    async def _do(self, step: Send | Pause) -> Answer:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        request = step.request
        try:
            async with (
                asyncio.timeout(request.timeout_seconds),
                self._opened(request, timeout_of(request)) as response,
            ):
                return await self._read(response)
        except TimeoutError:
            return too_slow(request)
        except httpx2.HTTPError as error:
            return unanswered(error)

    def _opened(
        self, request: Request, timeout: httpx2.Timeout
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        url = self._url + request.path
        return self._http.stream(request.method, url, timeout=timeout, **arguments_of(request))

    async def _read(self, response: httpx2.Response) -> Reply | Unanswered:
        reading = Reading(response)
        async for part in response.aiter_raw():
            if failed := reading.add(part):
                return failed
        return reading.reply()


class _Stream:
    """The event stream of a feed, while it has one open."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._held = AsyncExitStack()
        self._parts: AsyncIterator[bytes] | None = None

    async def __aenter__(self) -> "_Stream":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._held.aclose()

    async def do(self, step: Listen | Hear) -> Answer:
        try:
            if isinstance(step, Hear):
                return Heard(b"" if self._parts is None else await anext(self._parts, b""))
            async with asyncio.timeout(step.request.timeout_seconds):
                return await self._listen(step.request, step.silence_seconds)
        except TimeoutError:
            return Unanswered(reason="it took too long", may_have_arrived=True)
        except httpx2.HTTPError as error:
            return unanswered(error)

    async def _listen(self, request: Request, silence_seconds: float) -> Answer:
        await self._held.aclose()
        timeout = timeout_of(request, silence_seconds=silence_seconds)
        response = await self._held.enter_async_context(self._client._opened(request, timeout))
        if not is_event_stream(response):
            return await self._client._read(response)
        self._parts = response.aiter_raw()
        return Opened()
