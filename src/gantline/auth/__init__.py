"""Authentication and authorization. Knows no web framework: the API passes plain values."""

from typing import TYPE_CHECKING

from gantline.importing import face

if TYPE_CHECKING:
    from gantline.auth.action import Action
    from gantline.auth.api_key import KeyGrant
    from gantline.auth.api_key_authenticator import ApiKeyAuthenticator
    from gantline.auth.api_keys import ApiKeys
    from gantline.auth.authenticator import AllowAnonymous, AnyOf, Authenticator, Credentials
    from gantline.auth.authorizer import Authorizer, DefaultAuthorizer, Target
    from gantline.auth.jwks import PublishedKeys
    from gantline.auth.jwt_authenticator import JwtAuthenticator
    from gantline.auth.jwt_claims import ClaimMapping
    from gantline.auth.jwt_keys import StaticKeys, public_key, shared_secret
    from gantline.auth.peppers import Peppers
    from gantline.auth.principal import Principal, Role
    from gantline.auth.rate_limit import RateLimit
    from gantline.auth.stream_tokens import StreamTokens
else:
    __getattr__ = face(
        __name__,
        {
            "action": ("Action",),
            "api_key": ("KeyGrant",),
            "api_keys": ("ApiKeys",),
            "authenticator": ("AllowAnonymous", "AnyOf", "Authenticator", "Credentials"),
            "authorizer": ("Authorizer", "DefaultAuthorizer", "Target"),
            "jwks": ("PublishedKeys",),
            "jwt_authenticator": ("JwtAuthenticator",),
            "jwt_claims": ("ClaimMapping",),
            "jwt_keys": ("StaticKeys", "public_key", "shared_secret"),
            "api_key_authenticator": ("ApiKeyAuthenticator",),
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
    "KeyGrant",
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
