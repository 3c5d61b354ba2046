"""The dispatcher: what every request passes on its way to an operation, and its response back."""

import asyncio
import copy
import logging
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gantline.api import headers as request_headers
from gantline.api.call import Call
from gantline.api.documents import ProblemDocument
from gantline.api.json_response import JsonResponse
from gantline.api.operation import Operation, Parts
from gantline.api.parsing import check_json, decode, read_query
from gantline.api.problems import PROBLEM_PATH, ApiCode, Refused, invalid_parameter, refused_for
from gantline.api.rate_limiter import RateLimiter
from gantline.api.responses import Responses
from gantline.api.shares import Holder, Shares, Turn, Turns
from gantline.auth.authenticator import Authenticator
from gantline.auth.gate import Decision, Gate
from gantline.auth.principal import Principal
from gantline.contract.errors import (
    Code,
    GantlineError,
    InvalidCredentials,
    JobNotFound,
    NotAuthenticated,
    NotThere,
    SubmitRefused,
    WebhookNotFound,
)

_log = logging.getLogger("gantline.api")
_CARRY_CREDENTIALS: Final = frozenset({"authorization", "x-api-key"})
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Of a thousand requests that come from one address at the same moment, so many are identified.
_UNKNOWN_AT_A_TIME: Final = 16
# To decode more takes as long as many small requests do.
_LARGE_BODY_BYTES: Final = 32 * 1024
_FORGED: Final = (
    "A page of another origin asks for this. Send an API key or a token, or have an operator name "
    "the origin in cors_origins."
)


class Dispatcher:
    """Identify the caller, read the request, run the operation; every error becomes a problem."""

    def __init__(self, parts: Parts, authenticator: Authenticator, gate: Gate) -> None:
        self._jobs = parts.jobs
        self._settings = parts.settings
        self._responses = parts.responses
        self._authenticator = authenticator
        self._gate = gate
        self._limiter = RateLimiter(parts.jobs, parts.settings.rate_limits)
        self._hosts = frozenset(parts.settings.allowed_hosts)
        self._requests = Shares(self._settings.requests, "requests under way")
        self._bodies = Shares(self._settings.bodies, "bodies that are half sent")
        self._turns = Turns(self._settings.turns, beside_others=self._settings.turns_beside_others)
        self._long_turns = Turns(self._settings.long_turns)
        self._turns_of_unknown = Turns(_UNKNOWN_AT_A_TIME)
        self._time_limits = _TimeLimits(
            min(self._settings.request_timeout_seconds, self._settings.body_stall_seconds)
        )

    def responding_by(self, responses: Responses) -> "Dispatcher":
        """The same with other response factories."""
        other = copy.copy(self)
        other._responses = responses
        return other

    @property
    def is_overloaded(self) -> bool:
        """Whether requests of anybody are refused, or were a moment ago."""
        return self._requests.is_exhausted

    async def serve(
        self,
        operation: Operation,
        scope: Scope,
        receive: Receive,
        send: Send,
        principal: Principal | None = None,
    ) -> None:
        """Answer one request; `principal` where the caller is known already."""
        call, refused = self._received(scope, receive)
        try:
            response = (
                self._problem(call, refused)
                if refused
                else await self._respond(operation, call, principal)
            )
        except ClientDisconnect:
            return
        if type(response) is not JsonResponse:
            response = _own_copy(response)
        response.raw_headers += call.response_headers
        if scope["method"] == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    def _received(self, scope: Scope, receive: Receive) -> tuple[Call, Refused | None]:
        """A call of a request, and what is wrong already with how it is marked."""
        headers = request_headers.merged(scope["headers"])
        try:
            call = Call(scope, receive, headers, request_headers.correlation_id(headers))
        except Refused as refused:
            return Call(scope, receive, headers, request_headers.new_correlation_id()), refused
        if self._hosts and request_headers.host(headers) not in self._hosts:
            return call, invalid_parameter("Host", "is not a name by which this API may be called")
        return call, None

    def _is_forged(self, call: Call) -> bool:
        """Whether a page elsewhere may have had a browser send it, with its user's own rights."""
        headers = call.joined_headers
        return (
            request_headers.is_from_elsewhere(headers)
            and not request_headers.has_key_or_token(headers)
            and headers.get("origin") not in self._settings.cors_origins
        )

    async def _respond(
        self, operation: Operation, call: Call, principal: Principal | None
    ) -> Response:
        settings = self._settings
        try:
            self._count(call, Holder.unknown(call.address))
        except Refused as refused:
            return self._problem(call, refused)
        waiting = request_headers.wait_seconds(call.joined_headers, settings.longest_wait_seconds)
        task = self._time_limits.begin(settings.request_timeout_seconds + (waiting or 0.0))
        try:
            return await self._run(operation, call, principal)
        except Refused as refused:
            return self._problem(call, refused)
        except GantlineError as error:
            return self._problem(call, _refused_for(call, error))
        except asyncio.CancelledError:
            if self._time_limits.was_cancelled(task):
                return self._problem(call, _timed_out(call))
            raise
        except ClientDisconnect:
            raise
        except Exception:
            _log.exception("request %s failed", call.correlation_id)
            broken = Refused(ApiCode.INTERNAL_ERROR, "The request could not be handled.")
            return self._problem(call, broken)
        finally:
            self._count(call, None)
            self._time_limits.end(task)

    def _count(self, call: Call, holder: Holder | None) -> None:
        """Count a request for somebody, and no longer for whom it was counted; raise Refused."""
        if call.holder is not None:
            self._requests.give_back(call.holder)
            call.holder = None
        if holder is not None:
            self._requests.take(holder)
            call.holder = holder

    async def _run(self, operation: Operation, call: Call, principal: Principal | None) -> Response:
        call.operation = operation.name
        if not self._jobs.is_open:
            await self._jobs.open()
        if operation.right is not None:
            call.right = operation.right
            call.is_known_already = principal is not None
            call.principal = principal or await self._identified(operation, call)
            self._count(call, Holder.of(call.principal))
            await self._limiter.admit(call)
            if call.method not in _READING and self._is_forged(call):
                raise await self._forged(call)
        if operation.read is None:
            call.query = read_query(call, operation.query)
        if operation.body is not None:
            check_json(call.joined_headers)
        if operation.has_body and call.holder is not None:
            await self._read_body(call, call.holder)
        call.is_read = True
        try:
            if operation.right is None:
                return await operation.run(call)
            return await self._run_in_turn(operation, call)
        except (JobNotFound, NotThere, WebhookNotFound):
            await self._audit_missing(operation, call)
            raise

    async def _run_in_turn(self, operation: Operation, call: Call) -> Response:
        """Read and run it when it is its tenant's turn; a body is there as a whole before."""
        is_long = operation.is_long or len(call.raw_body) > _LARGE_BODY_BYTES
        turns = self._long_turns if is_long else self._turns
        call.turn = Turn(turns, call.principal.tenant_id)
        await call.turn.begin()
        try:
            if operation.read is not None:
                await operation.read(call)
            elif operation.body is not None:
                call.sent = decode(operation.body, call.raw_body)
            return await operation.run(call)
        finally:
            call.turn.end()

    async def _read_body(self, call: Call, holder: Holder) -> None:
        """Read a body as long as it arrives; one that does not is given up in a few seconds."""
        settings, limits, now = self._settings, self._time_limits, asyncio.get_running_loop().time
        end = limits.end_at
        last = min(end, now() + settings.body_seconds)

        def arriving() -> None:
            limits.end_at = min(last, now() + settings.body_stall_seconds)

        with self._bodies.taken(holder):
            arriving()
            await call.read_body(limit=settings.max_body_bytes, arriving=arriving)
        limits.end_at = end

    # -- the caller -------------------------------------------------------------------------------

    async def _identified(self, operation: Operation, call: Call) -> Principal:
        """The caller; of many who come from one address at once, a few at a time."""
        await self._turns_of_unknown.take(call.address)
        try:
            return await self._principal(operation, call)
        finally:
            self._turns_of_unknown.give_back(call.address)

    async def _principal(self, operation: Operation, call: Call) -> Principal:
        identify = operation.identify
        try:
            principal = await (
                identify(call) if identify else self._authenticator.authenticate(call.credentials)
            )
            if principal is not None:
                return principal
            error = _nobody(call)
        except NotAuthenticated as found:
            error = found
        await self._gate.record_unauthenticated(operation.name, error, asker=call.asker)
        raise self._challenging(error)

    async def _forged(self, call: Call) -> Refused:
        """Audit it as its user's, in whose chain it belongs."""
        what = f"origin:{call.joined_headers.get('origin', '?')}"
        await self._gate.record_refused(
            call.principal, call.right, Decision.FORBIDDEN, what=what, asker=call.asker
        )
        return Refused(Code.FORBIDDEN, _FORGED)

    async def _audit_missing(self, operation: Operation, call: Call) -> None:
        """Audit that an id was sent which is none here, where no decision about it was."""
        if operation.right is not None and not call.is_decided:
            await self._gate.record_refused(
                call.principal, call.right, Decision.HIDDEN, what=call.path, asker=call.asker
            )

    def _challenging(self, error: NotAuthenticated) -> Refused:
        challenge = self._authenticator.challenge or "Bearer"
        return Refused(error.code, str(error), headers={"www-authenticate": challenge})

    # -- problems ---------------------------------------------------------------------------------

    def problem_for(self, scope: Scope, receive: Receive, error: GantlineError) -> Response:
        """The response for an error that was raised outside of any operation."""
        call, _ = self._received(scope, receive)
        if isinstance(error, NotAuthenticated):
            refused = self._challenging(error)
        else:
            refused = _refused_for(call, error, within="#")
        response = _own_copy(self._problem(call, refused))
        response.raw_headers += call.response_headers
        return response

    def _problem(self, call: Call, refused: Refused) -> Response:
        headers = dict(refused.headers)
        if refused.retry_after_seconds is not None:
            headers["retry-after"] = str(refused.retry_after_seconds)
        return self._responses.error(problem_document(call, refused), headers)


def _own_copy(response: Response) -> Response:
    """A user's own may be one for all requests, each of which has headers of its own."""
    own = copy.copy(response)
    own.raw_headers = list(response.raw_headers)
    own.__dict__.pop("_headers", None)  # Starlette's view of the other list
    return own


def problem_document(call: Call, refused: Refused) -> ProblemDocument:
    kind = refused.kind
    return ProblemDocument(
        type=f"{call.root}{PROBLEM_PATH}{kind.slug}",
        title=kind.title,
        status=kind.status,
        detail=refused.detail,
        instance=call.path,
        error_code=kind.code,
        correlation_id=call.correlation_id,
        retryable=kind.retryable,
        errors=refused.errors,
    )


def _refused_for(call: Call, error: GantlineError, *, within: str = "#/payload") -> Refused:
    refused = refused_for(error, within=within)
    if refused.kind.status >= 500 and not isinstance(error, SubmitRefused):
        _log.error("request %s failed: %s", call.correlation_id, error)
    return refused


def _nobody(call: Call) -> NotAuthenticated:
    """Credentials of an unknown kind are not reported as missing, which would mislead."""
    if call.joined_headers.keys() & _CARRY_CREDENTIALS:
        return InvalidCredentials(
            "These credentials are of a kind that this server does not know.",
            next_step="Is it the right server, and a token of the right issuer?",
        )
    return NotAuthenticated(
        "No credentials were sent.", next_step="Send them as `Authorization: Bearer …`."
    )


def _timed_out(call: Call) -> Refused:
    if not call.is_read:
        return Refused(ApiCode.BODY_TIMEOUT, "The body did not arrive in time.")
    return Refused(ApiCode.REQUEST_TIMEOUT, "The request took too long.")


_OFTENEST_SECONDS: Final = 0.005
_SELDOMEST_SECONDS: Final = 1.0


class _TimeLimits:
    """Cancels requests that take too long. Exact to a tenth of the shortest limit, or a second.

    One timer for all of them: `asyncio.timeout` takes 4.3 µs a request, this 0.5.
    """

    def __init__(self, shortest_seconds: float) -> None:
        self._every = min(max(shortest_seconds / 10, _OFTENEST_SECONDS), _SELDOMEST_SECONDS)
        self._ends: dict[asyncio.Task[object], float] = {}
        self._cancelled: set[asyncio.Task[object]] = set()
        self._looking: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> "asyncio.Task[object]":
        """Limit what this task does from now on, until `end`."""
        task = _this_task()
        loop = task.get_loop()
        self._ends[task] = loop.time() + seconds
        if self._looking is None:
            self._looking = loop.call_later(self._every, self._look, loop)
        return task

    @property
    def end_at(self) -> float:
        """When this task is cancelled, by the clock of the loop."""
        return self._ends[_this_task()]

    @end_at.setter
    def end_at(self, at: float) -> None:
        self._ends[_this_task()] = at

    def end(self, task: "asyncio.Task[object]") -> None:
        self._ends.pop(task, None)
        self._cancelled.discard(task)

    def was_cancelled(self, task: "asyncio.Task[object]") -> bool:
        """Whether it was our doing; then it goes on as if it had not been cancelled."""
        if task not in self._cancelled:
            return False
        return task.uncancel() == 0

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task in [task for task, end in self._ends.items() if end <= now]:
            del self._ends[task]
            self._cancelled.add(task)
            task.cancel()
        self._looking = loop.call_later(self._every, self._look, loop) if self._ends else None


def _this_task() -> "asyncio.Task[object]":
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("only a task can be limited")
    return task
