"""An authorizer made of one function of the user's own."""

import inspect
from collections.abc import Awaitable, Callable

from gantline.auth.action import Action
from gantline.auth.authenticator import Credentials
from gantline.auth.authorizer import Target
from gantline.auth.principal import Principal
from gantline.contract.query import Visibility

Authorize = Callable[[Principal, Action, Target], bool | Awaitable[bool]]


class FunctionAuthorizer:
    """Ask the function, within the principal's own tenant: it cannot open another one.

    It cannot say beforehand which jobs it would let through, so lists are narrowed to the tenant
    and then asked for one by one; a page may have fewer items than its limit.
    """

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        if not (principal.is_system or principal.tenant_id == target.tenant_id):
            return False
        allowed = self._authorize(principal, action, target)
        return bool(await allowed if inspect.isawaitable(allowed) else allowed)

    def scope(self, principal: Principal, action: Action) -> Visibility:
        return Visibility(tenant_id=None if principal.is_system else principal.tenant_id)


class KnownByDependency:
    """Used where a web framework's own dependency gives the principal; it lets nobody in."""

    challenge = "Bearer"

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        return None
