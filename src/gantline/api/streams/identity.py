"""The principal of a stream: known by credentials as everywhere, or by a stream token."""

from typing import Final
from uuid import UUID

from gantline.api.call import Call
from gantline.api.parsing import parameters
from gantline.auth.authenticator import Authenticator, is_revoked
from gantline.auth.principal import Principal
from gantline.auth.stream_tokens import StreamTokens
from gantline.contract.errors import InvalidCredentials

COOKIE: Final = "gantline-stream"
PARAMETER: Final = "token"
ALL: Final = "all"
"""The name of the multiplexed stream; that of a job's stream is the job's id."""
# What browsers keep of a cookie, its name and attributes not counted.
_LONGEST_COOKIE: Final = 3_800


class Identity:
    """A token in the URL counts first, then one in a cookie if it is good, then credentials.

    A browser's EventSource sends no headers, and an API key never goes into a URL.
    """

    def __init__(self, authenticator: Authenticator, tokens: StreamTokens | None) -> None:
        self._authenticator = authenticator
        self._tokens = tokens

    async def of_all(self, call: Call) -> Principal | None:
        return await self._known(call, ALL)

    async def of_job(self, call: Call) -> Principal | None:
        return await self._known(call, str(call.job_id))

    async def _known(self, call: Call, stream: str) -> Principal | None:
        in_url = [
            value
            for name, value in parameters(call.scope["query_string"] or b"")
            if name == PARAMETER
        ]
        if in_url:
            return await self._by_token(in_url[0], stream)
        in_cookie = call.cookies.get(COOKIE)
        if in_cookie is None:
            return await self._authenticator.authenticate(call.credentials)
        try:
            return await self._by_token(in_cookie, stream)
        except InvalidCredentials as error:
            principal = await self._authenticator.authenticate(call.credentials)
            if principal is None:
                raise error from None
            return principal

    async def _by_token(self, token: str, stream: str) -> Principal:
        if self._tokens is None:
            raise InvalidCredentials("This server gives no stream tokens, and takes none.")
        principal = self._tokens.principal_of(token, stream)
        if await is_revoked(self._authenticator, principal):
            raise InvalidCredentials(
                "The key that the stream token was made for is not good any more.",
                next_step="Ask for a token with another key.",
            )
        return principal


def cookie_text(token: str, *, path: str, seconds: int, is_secure: bool) -> str | None:
    """A cookie that is sent to one stream only, and never shown to scripts; None if too long."""
    if len(token) > _LONGEST_COOKIE:
        return None
    text = f"{COOKIE}={token}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return text + ("; Secure" if is_secure else "")


def stream_path(root: str, job_id: UUID | None) -> str:
    return f"{root}/api/events" if job_id is None else f"{root}/api/jobs/{job_id}/events"
