"""An authorizer made of one function of the user's own."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial

from gantline.api.user_code import UserCode, name_of
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
        self._code: UserCode | None = None

    def called_by(self, code: UserCode) -> "FunctionAuthorizer":
        """The same, whose function is called so that it holds nobody up."""
        other = FunctionAuthorizer(self._authorize)
        other._code = code
        return other

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        if not (principal.is_system or principal.tenant_id == target.tenant_id):
            return False
        name, ask = name_of(self._authorize), partial(self._authorize, principal, action, target)
        code, tenant_id = self._code, principal.tenant_id
        allowed = ask() if code is None else await code.call(ask, name=name, tenant_id=tenant_id)
        if not inspect.isawaitable(allowed):
            return bool(allowed)
        return bool(await (allowed if code is None else code.limited(allowed, name=name)))

    def scope(self, principal: Principal, action: Action) -> Visibility:
        return Visibility(tenant_id=None if principal.is_system else principal.tenant_id)


class KnownByDependency:
    """Used where a web framework's own dependency gives the principal; it lets nobody in."""

    challenge = "Bearer"

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        return None
