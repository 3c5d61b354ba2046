"""Who somebody is, and what he may do. Knows no web framework: the API hands it plain values."""

from typing import TYPE_CHECKING

from windlass.contract.face import face

if TYPE_CHECKING:
    from windlass.auth.action import Action
    from windlass.auth.api_keys import ApiKeys
    from windlass.auth.authenticator import AllowAnonymous, AnyOf, Authenticator, Credentials
    from windlass.auth.authorizer import Authorizer, DefaultAuthorizer, Target
    from windlass.auth.jwks import PublishedKeys
    from windlass.auth.jwt_authenticator import JwtAuthenticator
    from windlass.auth.jwt_claims import ClaimMapping
    from windlass.auth.jwt_keys import StaticKeys, public_key, shared_secret
    from windlass.auth.key_authenticator import ApiKeyAuthenticator
    from windlass.auth.peppers import Peppers
    from windlass.auth.principal import Principal, Role
    from windlass.auth.rate_limit import RateLimit
    from windlass.auth.stream_tokens import StreamTokens
else:
    __getattr__ = face(
        __name__,
        {
            "action": ("Action",),
            "api_keys": ("ApiKeys",),
            "authenticator": ("AllowAnonymous", "AnyOf", "Authenticator", "Credentials"),
            "authorizer": ("Authorizer", "DefaultAuthorizer", "Target"),
            "jwks": ("PublishedKeys",),
            "jwt_authenticator": ("JwtAuthenticator",),
            "jwt_claims": ("ClaimMapping",),
            "jwt_keys": ("StaticKeys", "public_key", "shared_secret"),
            "key_authenticator": ("ApiKeyAuthenticator",),
            "peppers": ("Peppers",),
            "principal": ("Principal", "Role"),
            "rate_limit": ("RateLimit",),
            "stream_tokens": ("StreamTokens",),
        },
    )

__all__ = [
    "Action",
    "AllowAnonymous",
    "AnyOf",
    "ApiKeyAuthenticator",
    "ApiKeys",
    "Authenticator",
    "Authorizer",
    "ClaimMapping",
    "Credentials",
    "DefaultAuthorizer",
    "JwtAuthenticator",
    "Peppers",
    "Principal",
    "PublishedKeys",
    "RateLimit",
    "Role",
    "StaticKeys",
    "StreamTokens",
    "Target",
    "public_key",
    "shared_secret",
]
