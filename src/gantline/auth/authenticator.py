"""The authenticator port: from what a request carries to a principal."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import msgspec

from gantline.auth.principal import Principal, Role
from gantline.contract.errors import InvalidCredentials
from gantline.contract.job import DEFAULT_TENANT

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a request carries that may identify its sender.

    Header names are lower-case. A header that was sent twice is joined by a comma, so that it
    is malformed and neither of the two is chosen. Never log this: it holds secrets.
    """

    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: _NOTHING)
    cookies: Mapping[str, str] = msgspec.field(default_factory=lambda: _NOTHING)
    client: str = ""
    """The address of the caller, for the audit log."""

    def __repr__(self) -> str:
        return f"Credentials(client={self.client!r}, headers and cookies hidden)"

    @property
    def bearer(self) -> str | None:
        """The token of `Authorization: Bearer …`, if that is what was sent."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None


class Authenticator(Protocol):
    """Finds who a request comes from. Implement it to use your own sessions or tokens."""

    @property
    def challenge(self) -> str:
        """What `WWW-Authenticate` says in a 401."""
        ...

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the principal, or None when nothing of this authenticator's kind was sent.

        Raise InvalidCredentials when something was sent and is not valid: it becomes a 401, and its
        text is shown to the caller. StoreUnavailable and IdentityProviderUnavailable become a 503:
        nobody is accepted while his identity is not known.
        """
        ...


@runtime_checkable
class Revoking(Protocol):
    """An authenticator that knows whether the credentials of a principal are still valid.

    For stream tokens, which are made with credentials and sent instead of them.
    """

    async def is_revoked(self, principal: Principal) -> bool:
        """Whether a principal of this authenticator's kind would be refused now."""
        ...


async def is_revoked(authenticator: Authenticator, principal: Principal) -> bool:
    """Ask the authenticator, if it can check; else only the lifetime of a token bounds its use."""
    return isinstance(authenticator, Revoking) and await authenticator.is_revoked(principal)


class AnyOf:
    """Several authenticators; the first that knows the kind of credentials decides."""

    def __init__(self, *authenticators: Authenticator) -> None:
        if not authenticators:
            raise ValueError("AnyOf needs at least one authenticator")
        self._authenticators = authenticators

    @property
    def challenge(self) -> str:
        challenges = (each.challenge for each in self._authenticators)
        return ", ".join(dict.fromkeys(filter(None, challenges)))

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        for authenticator in self._authenticators:
            principal = await authenticator.authenticate(credentials)
            if principal is not None:
                return principal
        return None

    async def is_revoked(self, principal: Principal) -> bool:
        return any([await is_revoked(each, principal) for each in self._authenticators])


class AllowAnonymous:
    """Let everybody in as one principal: the explicit choice of an API without authentication.

    By default an operator of the default tenant. Put it last in `AnyOf` to let those in who send no
    credentials. A caller with unknown ones is refused: it expects to be known.
    """

    challenge = ""

    def __init__(self, principal: Principal | None = None) -> None:
        self._principal = principal or Principal(
            id="anonymous", tenant_id=DEFAULT_TENANT, roles=frozenset({Role.OPERATOR})
        )

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        if not credentials.headers.keys().isdisjoint(("authorization", "x-api-key")):
            raise InvalidCredentials(
                "These credentials are of a kind that is not known here.",
                next_step="Send none, or those that you were given for this server.",
            )
        return self._principal
