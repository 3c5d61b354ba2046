"""The blocking client."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

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


def _run(verb: Callable[Concatenate[Verbs, P], Flow[R]]) -> Callable[Concatenate["Client", P], R]:
    """A verb that blocks until it is done."""

    @wraps(verb)
    def run(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(verb(self._verbs, *args, **kwargs))

    return run


def _iterate(
    verb: Callable[Concatenate[Verbs, P], Feed[T, None]],
) -> Callable[Concatenate["Client", P], Generator[T, None, None]]:
    """A verb whose items are iterated over."""

    @wraps(verb)
    def iterate(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._iterate(verb(self._verbs, *args, **kwargs))

    return iterate


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
        self._clock = clock or SystemClock()
        self._verbs = Verbs(
            tenant=tenant,
            timeout_seconds=timeout_seconds,
            retries=retries or Retries(),
            clock=self._clock,
        )
        chosen = setup(url, api_key)
        self._url = chosen.url
        self._http = httpx2.Client(transport=transport, **chosen.arguments)
        self._closed = threading.Event()

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

    def close(self) -> None:
        """Let the connections go; pauses between attempts end at once."""
        self._closed.set()
        self._http.close()

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
        return f"<Client {self._url}>"

    def _run(self, flow: Flow[R]) -> R:
        answer: Answer = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = self._do(step)

    def _iterate(self, feed: Feed[T, None]) -> Generator[T, None, None]:
        answer: Answer = None
        with _Stream(self) as stream:
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
                        answer = stream.do(step)
                    case _:
                        answer = self._do(step)

    def _do(self, step: Send | Pause) -> Answer:
        if isinstance(step, Pause):
            self._closed.wait(step.seconds)
            return None
        request = step.request
        end = self._clock.monotonic() + request.timeout_seconds
        try:
            with self._opened(request, timeout_of(request)) as response:
                return self._read(request, response, end)
        except httpx2.HTTPError as error:
            return unanswered(error)

    def _opened(
        self, request: Request, timeout: httpx2.Timeout
    ) -> AbstractContextManager[httpx2.Response]:
        url = self._url + request.path
        return self._http.stream(request.method, url, timeout=timeout, **arguments_of(request))

    def _read(self, request: Request, response: httpx2.Response, end: float) -> Reply | Unanswered:
        reading = Reading(response)
        for part in response.iter_raw():
            if failed := reading.add(part):
                return failed
            if self._clock.monotonic() > end:
                return too_slow(request)
        return reading.reply()


class _Stream:
    """The event stream of a feed, while it has one open."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held = ExitStack()
        self._parts: Iterator[bytes] = iter(())

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def do(self, step: Listen | Hear) -> Answer:
        try:
            if isinstance(step, Hear):
                return Heard(next(self._parts, b""))
            return self._listen(step.request, step.silence_seconds)
        except httpx2.HTTPError as error:
            return unanswered(error)

    def _listen(self, request: Request, silence_seconds: float) -> Answer:
        self._held.close()
        end = self._client._clock.monotonic() + request.timeout_seconds
        timeout = timeout_of(request, silence_seconds=silence_seconds)
        response = self._held.enter_context(self._client._opened(request, timeout))
        if not is_event_stream(response):
            return self._client._read(request, response, end)
        self._parts = response.iter_raw()
        return Opened()
