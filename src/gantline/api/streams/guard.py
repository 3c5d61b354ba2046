"""The guard of a stream: who follows it, asked anew every few seconds, and what he may be told."""

import logging
from typing import Final

import msgspec

from gantline.api.call import Call
from gantline.api.operation import Identify
from gantline.api.streams.wanted import Wanted
from gantline.auth.action import Action
from gantline.auth.authorizer import Authorizer, Target
from gantline.auth.principal import Principal
from gantline.contract.clock import Clock
from gantline.contract.errors import GantlineError, NotAuthenticated
from gantline.contract.job import Job

_log = logging.getLogger("gantline.api")

# A store or an identity provider may be away for a moment; who it is was known a moment ago.
_UNKNOWN_FOR_SECONDS: Final = 30.0


class Guard:
    """Nothing is told on the strength of what was true when the stream was opened."""

    def __init__(
        self, call: Call, identify: Identify, authorizer: Authorizer, *, clock: Clock
    ) -> None:
        self._call = call
        self._identify = identify
        self._authorizer = authorizer
        self._clock = clock
        self._known_at = clock.monotonic()
        self.principal: Principal = call.principal
        self.can_ask = not call.is_told
        """Whether it can be asked anew who follows."""

    async def is_still_known(self) -> bool:
        """Ask anew who follows, by the very credentials that opened the stream."""
        if not self.can_ask:
            return True
        try:
            principal = await self._identify(self._call)
        except NotAuthenticated:
            return False
        except GantlineError as error:
            _log.warning("cannot tell now who follows a stream: %s", error)
            return self._clock.monotonic() - self._known_at < _UNKNOWN_FOR_SECONDS
        if principal is None or self._is_another(principal):
            return False
        self.principal, self._known_at = principal, self._clock.monotonic()
        return True

    def _is_another(self, principal: Principal) -> bool:
        return (principal.tenant_id, principal.id) != (self.principal.tenant_id, self.principal.id)

    async def may_be_told(self, job: Job) -> bool:
        return await self._authorizer.may(self.principal, Action.READ, Target.of(job))

    def narrowed(self, wanted: Wanted) -> Wanted:
        """What is wanted, by what may be seen now."""
        scope = self._authorizer.scope(self.principal, Action.READ)
        return msgspec.structs.replace(wanted, visible_to=scope)
