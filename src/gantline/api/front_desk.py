"""The front desk: what every request passes on its way to an operation, and its answer back."""

import asyncio
import copy
import logging
from typing import Final

from gantline.api import headers as request_headers
from gantline.api.answer import Answer, Header, Send
from gantline.api.body import ClientGone, Receive
from gantline.api.call import Call, Scope
from gantline.api.documents import ProblemDocument
from gantline.api.overdue import Overdue
from gantline.api.port import Jobs
from gantline.api.problems import PROBLEM_PATH, ApiCode, Refused, invalid_parameter, refused_for
from gantline.api.rate_limiter import RateLimiter
from gantline.api.responses import Responses
from gantline.api.served import Servable
from gantline.api.settings import ApiSettings
from gantline.auth.authenticator import Authenticator
from gantline.auth.gate import Gate
from gantline.auth.principal import Principal
from gantline.contract.errors import (
    Code,
    GantlineError,
    InvalidCredentials,
    NotAuthenticated,
    SubmitRefused,
)

_log = logging.getLogger("gantline.api")
_CARRY_CREDENTIALS: Final = frozenset({"authorization", "x-api-key"})
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORGED: Final = (
    "A page of another origin asks for this. Send an API key or a token, or have an operator name "
    "the origin in cors_origins."
)


class FrontDesk:
    """Tell who asks, read what is asked, run the operation, and turn every error into a problem."""

    def __init__(
        self,
        jobs: Jobs,
        *,
        authenticator: Authenticator,
        gate: Gate,
        limiter: RateLimiter,
        settings: ApiSettings,
        responses: Responses,
    ) -> None:
        self._jobs = jobs
        self._authenticator = authenticator
        self._gate = gate
        self._limiter = limiter
        self._settings = settings
        self._responses = responses
        self._hosts = frozenset(settings.allowed_hosts)
        self._under_way = 0
        self._overdue = Overdue()

    def answering(self, responses: Responses) -> "FrontDesk":
        """The same desk with other response factories."""
        other = copy.copy(self)
        other._responses = responses
        return other

    async def serve(self, served: Servable, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        call, refused = self.received(scope)
        try:
            answer = (
                self.problem(call, refused) if refused else await self.answer(served, call, receive)
            )
        except ClientGone:
            return
        with_body = scope["method"] != "HEAD"
        await answer.send(send, receive, correlation_id=call.correlation_id, with_body=with_body)

    def received(self, scope: Scope) -> tuple[Call, Refused | None]:
        """A call of a request, and what is wrong already with how it is marked."""
        headers = request_headers.merged(scope["headers"])
        try:
            call = Call(scope, headers, request_headers.correlation_id(headers))
        except Refused as refused:
            return Call(scope, headers, request_headers.new_correlation_id()), refused
        if self._hosts and request_headers.host(headers) not in self._hosts:
            return call, invalid_parameter("Host", "is not a name by which this API may be called")
        if self._under_way >= self._settings.most_at_once:
            return call, Refused(ApiCode.OVERLOADED, "Too many requests are under way.")
        if scope["method"] not in _READING and self._is_forged(headers):
            return call, Refused(Code.FORBIDDEN, _FORGED)
        return call, None

    def _is_forged(self, headers: dict[str, str]) -> bool:
        """Whether a page elsewhere may have had a browser send it, with its user's own rights."""
        return (
            request_headers.is_from_elsewhere(headers)
            and not request_headers.has_key_or_token(headers)
            and headers.get("origin") not in self._settings.cors_origins
        )

    async def answer(
        self, served: Servable, call: Call, receive: Receive, principal: Principal | None = None
    ) -> Answer:
        """Run an operation; `principal` where somebody else has told already who asks."""
        self._under_way += 1
        try:
            answer = await self._answered(served, call, receive, principal)
        finally:
            self._under_way -= 1
        if call.quota is None:
            return answer
        answer = copy.copy(answer)  # it may be one that others get too
        answer.headers = (*answer.headers, *call.quota.headers)
        return answer

    async def _answered(
        self, served: Servable, call: Call, receive: Receive, principal: Principal | None
    ) -> Answer:
        waiting = request_headers.wait_seconds(call.headers, self._settings.longest_wait_seconds)
        task = self._overdue.begin(self._settings.request_timeout_seconds + (waiting or 0.0))
        try:
            return await self._run(served, call, receive, principal)
        except Refused as refused:
            return self.problem(call, refused)
        except GantlineError as error:
            return self.problem(call, self._refused_for(call, error))
        except asyncio.CancelledError:
            if self._overdue.was_cancelled(task):
                return self.problem(call, _timed_out(call))
            raise
        except ClientGone:
            raise
        except Exception:
            _log.exception("request %s failed", call.correlation_id)
            return self.problem(call, _broken())
        finally:
            self._overdue.end(task)

    async def _run(
        self, served: Servable, call: Call, receive: Receive, principal: Principal | None
    ) -> Answer:
        operation = served.operation
        call.operation, call.receive = operation.name, receive
        if not self._jobs.is_open:
            await self._jobs.open()
        if not operation.is_public:
            call.is_told = principal is not None
            call.principal = principal or await self._principal(served, call)
            await self._limiter.admit(call)
        await served.read(call, receive, limit=self._settings.max_body_bytes)
        return await operation.run(call)

    async def _principal(self, served: Servable, call: Call) -> Principal:
        identify = served.operation.identify
        try:
            principal = await (
                identify(call) if identify else self._authenticator.authenticate(call.credentials)
            )
        except NotAuthenticated as error:
            raise await self._unauthenticated(served, call, error) from None
        if principal is None:
            raise await self._unauthenticated(served, call, _nobody(call))
        return principal

    async def _unauthenticated(
        self, served: Servable, call: Call, error: NotAuthenticated
    ) -> Refused:
        await self._gate.record_unauthenticated(served.operation.name, error, asker=call.asker)
        return self._challenging(error)

    def _challenging(self, error: NotAuthenticated) -> Refused:
        challenge = self._authenticator.challenge or "Bearer"
        header = (b"www-authenticate", challenge.encode("latin-1"))
        return Refused(error.code, str(error), headers=[header])

    def problem_for(self, call: Call, error: GantlineError) -> Answer:
        """The answer for an error that was raised outside of any operation."""
        if isinstance(error, NotAuthenticated):
            return self.problem(call, self._challenging(error))
        return self.problem(call, self._refused_for(call, error, within="#"))

    def _refused_for(
        self, call: Call, error: GantlineError, *, within: str = "#/payload"
    ) -> Refused:
        refused = refused_for(error, within=within)
        if refused.kind.status >= 500 and not isinstance(error, SubmitRefused):
            _log.error("request %s failed: %s", call.correlation_id, error)
        return refused

    def problem(self, call: Call, refused: Refused) -> Answer:
        """The answer for a refusal."""
        headers = list[Header](refused.headers)
        if refused.retry_after_seconds is not None:
            headers.append((b"retry-after", b"%d" % refused.retry_after_seconds))
        return self._responses.error(problem_document(call, refused), headers)


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


def _nobody(call: Call) -> NotAuthenticated:
    """Who sent something, and reads that nothing was sent, looks for the fault where it is not."""
    if call.credentials.headers.keys() & _CARRY_CREDENTIALS:
        return InvalidCredentials(
            "These credentials are of a kind that this server does not know.",
            next_step="Is it the right server, and a token of the right issuer?",
        )
    return NotAuthenticated(
        "No credentials were sent.", next_step="Send them as `Authorization: Bearer …`."
    )


def _broken() -> Refused:
    return Refused(ApiCode.INTERNAL_ERROR, "The request could not be handled.")


def _timed_out(call: Call) -> Refused:
    if not call.is_read:
        return Refused(ApiCode.BODY_TIMEOUT, "The body did not arrive in time.")
    return Refused(ApiCode.REQUEST_TIMEOUT, "The request took too long.")
