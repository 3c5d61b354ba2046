"""The blocking client: the asynchronous one on an event loop in a thread."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from concurrent.futures import CancelledError
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import httpx2

from gantline.api.documents import BatchDocument
from gantline.api.requests import JobToSubmit
from gantline.client.asking import Items
from gantline.client.async_client import AsyncClient, joined
from gantline.client.exchange import Retries
from gantline.contract.clock import Clock
from gantline.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_CLOSE_SECONDS: Final = 5.0


_beginning: Final = threading.RLock()
os.register_at_fork(
    before=_beginning.acquire,
    after_in_parent=_beginning.release,
    after_in_child=_beginning.release,
)


def _run(
    verb: Callable[Concatenate[AsyncClient, P], Awaitable[R]],
) -> Callable[Concatenate["Client", P], R]:
    """A verb that blocks until it is done."""

    @wraps(verb)
    def run(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> R:
        loop, client = self._started()
        return _wait(loop, lambda: verb(client, *args, **kwargs))

    return run


def _iterate(
    verb: Callable[Concatenate[AsyncClient, P], Items[T]],
) -> Callable[Concatenate["Client", P], Generator[T, None, None]]:
    """A verb whose items are iterated over."""

    @wraps(verb)
    def iterate(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        loop, client = self._started()
        return self._items(loop, verb(client, *args, **kwargs))

    return iterate


def _wait(loop: LoopThread, make: Callable[[], Awaitable[R]]) -> R:
    try:
        return loop.run(make)
    except CancelledError:
        raise RuntimeError("The client has been closed.") from None


class Client:
    """A server's jobs, for programs without an event loop. Threads may share one.

    >>> with Client("https://jobs.example.com", api_key=key) as jobs:
    ...     accepted = jobs.submit("document-indexing", {"documentId": "d1"})
    ...     status = jobs.wait(accepted.job_id, timeout=30)

    Without arguments it takes GANTLINE_URL and GANTLINE_API_KEY. Only an operator of the whole
    installation needs `tenant`, to name another one than his own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        timeout_seconds: float = 30.0,
        retries: Retries | None = None,
        transport: httpx2.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._make = partial(
            AsyncClient,
            url,
            api_key=api_key,
            tenant=tenant,
            timeout_seconds=timeout_seconds,
            retries=retries,
            transport=_asynchronous(transport),
            clock=clock,
        )
        self._is_closed = False
        self._process = 0
        self._begin()

    def _begin(self) -> None:
        """Once in each process: neither threads nor connections survive a fork."""
        if self._process != os.getpid():
            with _beginning:
                if self._process != os.getpid():
                    self._lock = threading.RLock()
                    self._client = self._make()
                    self._loop: LoopThread | None = None
                    self._process = os.getpid()  # the last: others go on from here

    def _started(self) -> tuple[LoopThread, AsyncClient]:
        self._begin()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("The client has been closed.")
            if self._loop is None:
                self._loop = LoopThread()
                # Also where nobody calls close: a thread would stay for each client.
                stop = weakref.finalize(self, self._loop.stop, self._client.close)
                stop.atexit = False
            return self._loop, self._client

    def _items(self, loop: LoopThread, items: Items[T]) -> Generator[T, None, None]:
        """A method, so that the iterator keeps this client alive."""
        try:
            while (part := _wait(loop, lambda: anext(items.parts, None))) is not None:
                yield from part
        finally:
            # Not waited for: the garbage collector may close this in any thread, the loop's too.
            loop.start(items.parts.aclose)

    def submit_many(
        self, jobs: Iterable[JobToSubmit], *, request_key: str | None = None
    ) -> BatchDocument:
        # Here, and not on the loop: `jobs` may be a generator that itself uses this client.
        loop, client = self._started()
        batches = client._batches(jobs, request_key)
        return joined([_wait(loop, partial(client._ask, one, BatchDocument)) for one in batches])

    submit_many.__doc__ = AsyncClient.submit_many.__doc__

    submit = _run(AsyncClient.submit)
    submit_envelope = _run(AsyncClient.submit_envelope)
    submit_and_wait = _run(AsyncClient.submit_and_wait)
    status = _run(AsyncClient.status)
    job = _run(AsyncClient.job)
    history = _run(AsyncClient.history)
    attempts = _run(AsyncClient.attempts)
    why = _run(AsyncClient.why)
    wait = _run(AsyncClient.wait)
    result = _run(AsyncClient.result)
    jobs = _iterate(AsyncClient.jobs)
    follow = _iterate(AsyncClient.follow)
    follow_jobs = _iterate(AsyncClient.follow_jobs)
    cancel = _run(AsyncClient.cancel)
    redrive = _run(AsyncClient.redrive)
    redrive_edited = _run(AsyncClient.redrive_edited)
    delete = _run(AsyncClient.delete)
    dead_letters = _iterate(AsyncClient.dead_letters)
    dead_letter = _run(AsyncClient.dead_letter)
    dead_summary = _run(AsyncClient.dead_summary)
    redrive_dead_letters = _run(AsyncClient.redrive_dead_letters)
    queues = _run(AsyncClient.queues)
    pause_queue = _run(AsyncClient.pause_queue)
    resume_queue = _run(AsyncClient.resume_queue)
    cap_queue = _run(AsyncClient.cap_queue)
    workers = _iterate(AsyncClient.workers)
    job_types = _run(AsyncClient.job_types)
    job_type = _run(AsyncClient.job_type)
    pause_type = _run(AsyncClient.pause_type)
    resume_type = _run(AsyncClient.resume_type)
    disable_type = _run(AsyncClient.disable_type)
    enable_type = _run(AsyncClient.enable_type)
    limits = _run(AsyncClient.limits)
    limits_of = _run(AsyncClient.limits_of)
    set_limits = _run(AsyncClient.set_limits)
    clear_limits = _run(AsyncClient.clear_limits)
    gates = _run(AsyncClient.gates)
    groups = _iterate(AsyncClient.groups)
    audit_events = _iterate(AsyncClient.audit_events)
    statistics = _run(AsyncClient.statistics)
    scale = _run(AsyncClient.scale)
    webhooks = _run(AsyncClient.webhooks)
    webhook = _run(AsyncClient.webhook)
    create_webhook = _run(AsyncClient.create_webhook)
    update_webhook = _run(AsyncClient.update_webhook)
    delete_webhook = _run(AsyncClient.delete_webhook)
    rotate_webhook = _run(AsyncClient.rotate_webhook)
    enable_webhook = _run(AsyncClient.enable_webhook)
    disable_webhook = _run(AsyncClient.disable_webhook)
    test_webhook = _run(AsyncClient.test_webhook)
    deliveries = _iterate(AsyncClient.deliveries)
    delivery = _run(AsyncClient.delivery)
    replay_delivery = _run(AsyncClient.replay_delivery)
    replay_deliveries = _run(AsyncClient.replay_deliveries)
    schedules = _iterate(AsyncClient.schedules)
    schedule = _run(AsyncClient.schedule)
    next_runs = _run(AsyncClient.next_runs)
    add_schedule = _run(AsyncClient.add_schedule)
    replace_schedule = _run(AsyncClient.replace_schedule)
    pause_schedule = _run(AsyncClient.pause_schedule)
    resume_schedule = _run(AsyncClient.resume_schedule)
    run_schedule = _run(AsyncClient.run_schedule)
    delete_schedule = _run(AsyncClient.delete_schedule)

    def close(self) -> None:
        """Close the connections; calls of other threads end at once."""
        self._begin()
        with self._lock:
            self._is_closed, loop = True, self._loop
        if loop is not None:
            loop.stop(self._client.close)
            loop.join(_CLOSE_SECONDS)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self._client._http.url}>"


def _asynchronous(
    transport: httpx2.BaseTransport | None,
) -> httpx2.AsyncBaseTransport | None:
    if transport is None or isinstance(transport, httpx2.AsyncBaseTransport):
        return transport
    return _InThreads(transport)


class _InThreads(httpx2.AsyncBaseTransport):
    """A transport that blocks, called in threads, so that the loop does not wait for it."""

    def __init__(self, transport: httpx2.BaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await asyncio.to_thread(self._transport.handle_request, request)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Body(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await asyncio.to_thread(self._transport.close)


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = iter(self._stream)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            yield part

    async def aclose(self) -> None:
        await asyncio.to_thread(self._stream.close)
