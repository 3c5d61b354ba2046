"""Asking: how requests are made, sent until they are answered, and their answers read."""

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID
from weakref import WeakSet

import msgspec

from gantline.api.documents import StatusDocument
from gantline.api.requests import JobToSubmit, RedriveByFilter
from gantline.api.schedule_documents import NewSchedule
from gantline.client.event_stream import StreamEvent, follow
from gantline.client.exchange import IDEMPOTENCY_KEY, Retries, exchange
from gantline.client.http import Http, Reply, Request
from gantline.client.refusals import CORRELATION
from gantline.client.submission import seconds_of
from gantline.contract.clock import Clock
from gantline.contract.errors import BadAnswer, InvalidInput, ServerUnreachable
from gantline.runtime import new_uuid

D = TypeVar("D")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S", JobToSubmit, NewSchedule, RedriveByFilter)
Values = Mapping[str, Any]
JobId = UUID | str

_PAGE: Final = 100
_FIRST_LOOK_SECONDS: Final = 0.1
_LONGEST_LOOK_SECONDS: Final = 2.0
# Who gives no time at all still gets an answer.
_LEAST_SECONDS: Final = 0.5
_KEY_LIMIT: Final = 200


class ListPage(Protocol[T_co]):
    """A page of any list."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def next_cursor(self) -> str | None: ...


class Items(AsyncGenerator[T, None]):
    """What a verb lists, item by item; `parts` are as many of them as came at once."""

    def __init__(self, parts: AsyncGenerator[Sequence[T], None]) -> None:
        self.parts = parts
        self._each = _each(parts)

    async def asend(self, value: None, /) -> T:
        return await self._each.asend(value)

    async def athrow(self, *error: Any) -> T:
        return await self._each.athrow(*error)

    async def aclose(self) -> None:
        await self._each.aclose()


async def _each(parts: AsyncGenerator[Sequence[T], None]) -> AsyncGenerator[T, None]:
    async with aclosing(parts):
        async for part in parts:
            for item in part:
                yield item


class Asking:
    """What all verbs share: for which tenant, how patiently, and how an answer is read."""

    def __init__(
        self,
        http: Http,
        *,
        tenant: str | None,
        timeout_seconds: float,
        retries: Retries,
        clock: Clock,
    ) -> None:
        self._http = http
        self._tenant = tenant
        self._timeout_seconds = timeout_seconds
        self._retries = retries
        self._clock = clock
        self._streams: WeakSet[AsyncGenerator[StreamEvent, None]] = WeakSet()

    @property
    def _of_tenant(self) -> Mapping[str, str]:
        """The parameter that names the tenant, where one is named."""
        return {} if self._tenant is None else {"tenantId": self._tenant}

    def _request(
        self,
        method: str,
        path: str,
        *,
        values: Values | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        key: str | None = None,
        wait_seconds: int = 0,
        job_id: JobId | None = None,
    ) -> Request:
        """Make a request; `{job_id}` in the path is filled in. Raise InvalidInput."""
        about = None if job_id is None else read_id(job_id, "a job id")
        sent = {CORRELATION: str(new_uuid()), **(headers or {})}
        if body is not None:
            sent["content-type"] = "application/json"
        if key is not None:
            sent[IDEMPOTENCY_KEY] = _quoted(key)
        if wait_seconds:
            sent["prefer"] = f"wait={wait_seconds}"
        return Request(
            method=method,
            path=path.replace("{job_id}", str(about)),
            query=_query(values or {}),
            headers=sent,
            body=body,
            timeout_seconds=self._timeout_seconds + wait_seconds,
            job_id=about,
        )

    async def _reply_to(self, request: Request) -> Reply:
        return await exchange(request, self._retries, self._http.send)

    async def _ask(self, request: Request, document: type[D]) -> D:
        """Send a request and read the document that it is answered with."""
        return decoded(await self._reply_to(request), document)

    async def _call(self, method: str, path: str, document: type[D], **parts: Any) -> D:
        """Make a request of these parts, send it, and read the document."""
        return await self._ask(self._request(method, path, **parts), document)

    def _for_tenant(self, sent: S) -> S:
        """What is sent, for the client's tenant where it names none."""
        if self._tenant is None or sent.tenant_id is not None:
            return sent
        return msgspec.structs.replace(sent, tenant_id=self._tenant)

    def _list(
        self, path: str, values: Values, limit: int | None, *, page_of: type[ListPage[T]]
    ) -> Items[T]:
        """Give the items of a list; a page is asked for when its first item is."""
        return Items(self._pages(path, values, limit, page_of))

    async def _pages(
        self, path: str, values: Values, limit: int | None, page_of: type[ListPage[T]]
    ) -> AsyncGenerator[Sequence[T], None]:
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            asked = {**values, **self._of_tenant, "limit": size, "cursor": cursor}
            page = await self._call("GET", path, page_of, values=asked)
            yield page.items
            left = None if left is None else left - len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return

    def _follow(
        self, request: Request, last_event_id: str, *, is_of_one_job: bool
    ) -> Items[StreamEvent]:
        headers = {**request.headers, "accept": "text/event-stream"}
        events = follow(
            self._http,
            msgspec.structs.replace(request, headers=headers),
            self._retries,
            last_event_id=last_event_id,
            is_of_one_job=is_of_one_job,
        )
        self._streams.add(events)
        return Items(_one_by_one(events))

    def _end_of(self, timeout: timedelta | float | None) -> float:
        """When the time will be up."""
        seconds = seconds_of(timeout)
        return math.inf if seconds is None else self._clock.monotonic() + seconds

    def _ending_by(self, request: Request, end: float) -> Request:
        left = max(_LEAST_SECONDS, end - self._clock.monotonic())
        seconds = min(request.timeout_seconds, left)
        return msgspec.structs.replace(request, timeout_seconds=seconds)

    async def _until_ended(self, job_id: JobId, end: float) -> StatusDocument:
        """Look until the job has ended: ever less often, and soon again when it has moved."""
        pause, known = _FIRST_LOOK_SECONDS, None
        while True:
            status = await self._look(job_id, end, known)
            if status.status.is_terminal:
                return status
            left = end - self._clock.monotonic()
            if left <= 0:
                raise _still(status)
            has_moved = known is None or status.version != known.version
            pause = _FIRST_LOOK_SECONDS if has_moved else 1.5 * pause
            known = status
            await asyncio.sleep(min(pause, left, _LONGEST_LOOK_SECONDS))

    async def _look(
        self, job_id: JobId, end: float, known: StatusDocument | None
    ) -> StatusDocument:
        request = self._request("GET", "/api/jobs/{job_id}/status", job_id=job_id)
        try:
            return await self._ask(self._ending_by(request, end), StatusDocument)
        except ServerUnreachable:
            if known is None or self._clock.monotonic() < end:
                raise
            raise _still(known) from None


def _still(status: StatusDocument) -> TimeoutError:
    return TimeoutError(f"Job {status.job_id} is still {status.state}.")


async def _one_by_one(events: AsyncGenerator[T, None]) -> AsyncGenerator[Sequence[T], None]:
    async with aclosing(events):
        async for event in events:
            yield [event]


def read_id(given: JobId, what: str) -> UUID:
    try:
        return given if isinstance(given, UUID) else UUID(given)
    except ValueError:
        raise InvalidInput(
            f"{str(given)[:64]!r} is not {what}.", next_step="It is a UUID."
        ) from None


def key_or_new(given: str | None) -> str:
    """The key that was given, or a new one."""
    if given is None:
        return new_uuid().hex
    if not 1 <= len(given) <= _KEY_LIMIT or not given.isascii() or not given.isprintable():
        raise InvalidInput(
            f"A request key must be 1 to {_KEY_LIMIT} printable characters of ASCII."
        )
    return given


def _quoted(key: str) -> str:
    """A structured string, as RFC 8941 has it."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _query(values: Values) -> tuple[tuple[str, str], ...]:
    """The parameters of a URL: one for each value of a list, none for None."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise InvalidInput("An instant needs its time zone.", next_step="Give tzinfo=UTC.")
            pairs.append((name, value.isoformat()))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            pairs += [(name, str(one)) for one in value]
        elif value is not None:
            pairs.append((name, "true" if value is True else str(value)))
    return tuple(pairs)


def decoded(reply: Reply, document: type[D]) -> D:
    """Read a document; raise BadAnswer where it is none."""
    try:
        return msgspec.json.decode(reply.body, type=document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = BadAnswer(
            f"The server answered {reply.status} with what is not of this API.",
            next_step="Is the URL that of a Gantline server, and is it as new as this client?",
        )
        error.correlation_id = reply.headers.get(CORRELATION, "")
        raise error from None
