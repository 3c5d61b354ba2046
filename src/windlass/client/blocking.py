"""The blocking client."""

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

import httpx2

from windlass.client.exchange import Retries
from windlass.client.steps import Answer, Feed, Flow, Give, Pause, Reply, Request, Send, Unanswered
from windlass.client.verbs import Verbs
from windlass.client.wire import Reading, setup, timeout_of, too_slow, unanswered
from windlass.contract.clock import Clock, SystemClock

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
    verb: Callable[Concatenate[Verbs, P], Feed[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    """A verb whose items are iterated over."""

    @wraps(verb)
    def iterate(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._iterate(verb(self._verbs, *args, **kwargs))

    return iterate


class Client:
    """A server's jobs, for programs without an event loop. Threads may share one.

    >>> with Client("https://jobs.example.com", api_key=key) as jobs:
    ...     accepted = jobs.submit("document-indexing", {"documentId": "d1"})
    ...     status = jobs.wait(accepted.job_id, timeout=30)

    Without arguments it takes WINDLASS_URL and WINDLASS_API_KEY. Only an operator of the whole
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
    statistics = _run(Verbs.statistics)
    scale = _run(Verbs.scale)

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

    def _iterate(self, feed: Feed[T]) -> Iterator[T]:
        answer: Answer = None
        while True:
            try:
                step = feed.send(answer)
            except StopIteration:
                return
            if isinstance(step, Give):
                yield step.item
                answer = None
            else:
                answer = self._do(step)

    def _do(self, step: Send | Pause) -> Answer:
        if isinstance(step, Pause):
            self._closed.wait(step.seconds)
            return None
        try:
            return self._send(step.request)
        except httpx2.HTTPError as error:
            return unanswered(error)

    def _send(self, request: Request) -> Reply | Unanswered:
        end = self._clock.monotonic() + request.timeout_seconds
        with self._http.stream(
            request.method,
            self._url + request.path,
            params=request.query or None,
            headers=dict(request.headers),
            content=request.body,
            timeout=timeout_of(request),
        ) as response:
            reading = Reading(response)
            for part in response.iter_raw():
                if failed := reading.add(part):
                    return failed
                if self._clock.monotonic() > end:
                    return too_slow(request)
            return reading.reply()
