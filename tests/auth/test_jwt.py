"""Tokens of an issuer: the good ones become principals, all others are refused."""

import base64
import logging
import math
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from gantline.auth.action import Action
from gantline.auth.authenticator import AllowAnonymous, AnyOf, Credentials
from gantline.auth.jwt_authenticator import LARGEST, JwtAuthenticator
from gantline.auth.jwt_claims import ClaimMapping
from gantline.auth.jwt_keys import StaticKeys, key_from_jwk, public_key, shared_secret
from gantline.auth.principal import Principal, Role
from gantline.contract.errors import AuthMisconfigured, InvalidCredentials
from gantline.testing.clock import FakeClock
from tests.auth.tokens import (
    AUDIENCE,
    ISSUER,
    Claims,
    SigningKey,
    bearing,
    encoded,
    signed_by_hmac,
)

CLOCK = FakeClock()
CLAIMS = Claims(CLOCK.now())
RSA = SigningKey.of("RS256", "rsa")
KEYS = {name: SigningKey.of(name, name) for name in ("PS256", "ES256", "EdDSA")} | {"RS256": RSA}
SECRET = b"0123456789abcdef0123456789abcdef"


def authenticator(*keys: Any, **options: Any) -> JwtAuthenticator:
    found = keys or [public_key(key.pem, kid=key.kid) for key in KEYS.values()]
    settings: Any = {"issuer": ISSUER, "audience": AUDIENCE, "clock": CLOCK} | options
    return JwtAuthenticator(StaticKeys(*found), **settings)


async def comes(token: str, **options: Any) -> Principal:
    principal = await authenticator(**options).authenticate(bearing(token))
    assert principal is not None
    return principal


async def refused(token: str, why: str = "is not valid", **options: Any) -> None:
    with pytest.raises(InvalidCredentials, match=why) as caught:
        await comes(token, **options)
    error = caught.value
    assert token[-40:] not in f"{error!r} {error.internal} {error.__cause__!r}"


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_good_token_stands_for_its_subject(algorithm: str) -> None:
    claims = CLAIMS.of(roles=["operator", "cook"], subjects=["s1", "s2"])
    principal = await comes(KEYS[algorithm].sign(claims))
    assert principal == Principal(
        id="user:ada",
        tenant_id="a",
        roles=frozenset({Role.OPERATOR}),
        subjects=frozenset({"s1", "s2"}),
    )


@pytest.mark.parametrize(
    ("claim", "given", "found"),
    [
        ("oid", {"oid": "0a1b"}, "user:0a1b"),
        ("preferred_username", {"preferred_username": "ada@example.org"}, "user:ada@example.org"),
        (("realm", "id"), {"realm": {"id": "7"}}, "user:7"),
        ("oid", {"oid": "0a1b", "sub": None}, "user:0a1b"),
    ],
)
async def test_who_it_is_may_be_in_any_claim(claim: Any, given: dict[str, Any], found: str) -> None:
    token = RSA.sign(CLAIMS.of(**given))
    assert (await comes(token, claims=ClaimMapping(id=claim))).id == found


@pytest.mark.parametrize("given", [{}, {"oid": ""}, {"oid": 7}, {"oid": ["a"]}, {"oid": "a\nb"}])
async def test_a_token_without_the_claim_is_nobody(given: dict[str, Any]) -> None:
    """Not whoever its `sub` names: one person must not be two."""
    token = RSA.sign(CLAIMS.of(**given))
    await refused(token, "has no oid", claims=ClaimMapping(id="oid"))
    await refused(RSA.sign(CLAIMS.of(sub=None)), "has no sub")


async def test_a_shared_secret_can_be_chosen() -> None:
    token = signed_by_hmac({"alg": "HS256"}, CLAIMS.of(), SECRET)
    by_secret = authenticator(shared_secret(SECRET), algorithms=["HS256"])
    assert await by_secret.authenticate(bearing(token)) is not None
    await refused(token)
    with pytest.raises(AuthMisconfigured, match=r"algorithms=\['HS256'\]"):
        authenticator(shared_secret(SECRET))  # which could let nobody in
    wrong = authenticator(shared_secret(SECRET[::-1]), algorithms=["HS256"])
    with pytest.raises(InvalidCredentials):
        await wrong.authenticate(bearing(token))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["other", AUDIENCE]},
        {"nbf": int(CLOCK.now().timestamp())},
        {"exp": CLOCK.now().timestamp() + 0.5},
        {"exp": int(CLOCK.now().timestamp()) - 29},
        {"nbf": int(CLOCK.now().timestamp()) + 29},
    ],
    ids=str,
)
async def test_claims_that_are_good(claims: dict[str, Any]) -> None:
    assert (await comes(RSA.sign(CLAIMS.of(**claims)))).id == "user:ada"


NOW = int(CLOCK.now().timestamp())


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": None}, "is not valid"),
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": "soon"}, "is not valid"),
        ({"exp": True}, "is not valid"),
        ({"exp": [NOW + 60]}, "is not valid"),
        ({"exp": 10**400}, "is not valid"),
        ({"nbf": NOW + 31}, "is not good yet"),
        ({"nbf": "now"}, "is not valid"),
        ({"aud": None}, "is not valid"),
        ({"aud": "other"}, "is not valid"),
        ({"aud": []}, "is not valid"),
        ({"aud": [1, None]}, "is not valid"),
        ({"aud": {AUDIENCE: 1}}, "is not valid"),
        ({"sub": None}, "no sub"),
        ({"sub": ""}, "no sub"),
        ({"sub": "x" * 300}, "no sub"),
        ({"sub": "a\nb"}, "no sub"),
        ({"sub": 7}, "is not valid"),
        ({"tenant": None}, "no tenant"),
        ({"tenant": ""}, "no tenant"),
        ({"tenant": ["a"]}, "no tenant"),
        ({"tenant": "x" * 129}, "no tenant"),
        ({"subjects": [str(number) for number in range(1001)]}, "says too much"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_claims_that_are_not(claims: dict[str, Any], why: str) -> None:
    await refused(RSA.sign(CLAIMS.of(**claims)), why)


@pytest.mark.parametrize("exp", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_a_time_that_is_no_number_is_refused(exp: str) -> None:
    """JSON of Python reads them, and no comparison with NaN ever says that it is over."""
    claims = encoded(CLAIMS.of(exp=None))
    body = encoded(b'{"exp":' + exp.encode() + b"," + _bytes(claims)[1:])
    token = f"{encoded({'alg': 'RS256', 'kid': 'rsa'})}.{body}.{encoded(b'x')}"
    await refused(token)
    assert not math.isfinite(float(exp))


def _bytes(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


async def test_no_signature_is_no_signature() -> None:
    claims = encoded(CLAIMS.of())
    for algorithm in ("none", "None", "NONE", "nOnE", "", None, 7, ["RS256"]):
        header = encoded({"alg": algorithm, "kid": "rsa"})
        for signature in ("", encoded(b"x")):
            await refused(f"{header}.{claims}.{signature}")
    await refused(f"{encoded({'kid': 'rsa'})}.{claims}.")
    good = RSA.sign(CLAIMS.of())
    await refused(good[: good.rindex(".") + 1])


@pytest.mark.parametrize("allowed", [("RS256", "HS256"), ("RS256",)], ids=str)
async def test_a_public_key_is_not_taken_for_a_secret(allowed: tuple[str, ...]) -> None:
    """Everybody has it, so everybody could sign with it."""
    for secret in (RSA.pem, RSA.pem.strip(), RSA.pem.decode().replace("\n", "").encode()):
        for kid in ("rsa", ""):
            token = signed_by_hmac({"alg": "HS256", "kid": kid}, CLAIMS.of(), secret)
            await refused(token, algorithms=allowed)


def test_keys_that_no_allowed_algorithm_fits_cannot_be_set_up() -> None:
    with pytest.raises(AuthMisconfigured, match="no token could be good"):
        authenticator(public_key(RSA.pem), algorithms=["HS256"])


async def test_an_algorithm_that_the_key_could_do_must_still_be_allowed() -> None:
    for algorithm in ("RS384", "PS256"):
        token = SigningKey(algorithm, RSA.private, "rsa").sign(CLAIMS.of())
        await refused(token, algorithms=["RS256"])
        await comes(token, algorithms=["RS256", algorithm])


async def test_a_token_brings_no_key_of_its_own() -> None:
    """Neither inside it nor as an address to fetch it from."""
    mine = SigningKey.of("RS256", "mine")
    for header in (
        {"jwk": mine.jwk},
        {"jku": "https://attacker.example/keys"},
        {"x5u": "https://attacker.example/cert"},
        {"kid": "rsa", "jwk": mine.jwk},
        {"kid": "../../dev/null"},
        {"kid": "' OR 1=1"},
    ):
        await refused(mine.sign(CLAIMS.of(), **header))


async def test_what_it_wants_understood_must_be() -> None:
    await refused(RSA.sign(CLAIMS.of(), crit=["exp"]))
    await refused(RSA.sign(CLAIMS.of(), crit=[]))


async def test_another_kind_of_token_is_no_access_token() -> None:
    await refused(RSA.sign(CLAIMS.of(), typ="logout+jwt"))
    await comes(RSA.sign(CLAIMS.of(), typ="at+jwt"))


async def test_without_an_id_the_key_must_be_clear() -> None:
    one, other = SigningKey.of("ES256", ""), SigningKey.of("ES256", "")
    token = one.sign(CLAIMS.of())
    alone = authenticator(public_key(one.pem, kid="x"), public_key(RSA.pem, kid="rsa"))
    assert await alone.authenticate(bearing(token)) is not None
    two = authenticator(public_key(one.pem, kid="x"), public_key(other.pem, kid="y"))
    with pytest.raises(InvalidCredentials):
        await two.authenticate(bearing(token))


async def test_a_changed_token_is_refused() -> None:
    good = RSA.sign(CLAIMS.of())
    header, _, signature = good.split(".")
    await refused(f"{header}.{encoded(CLAIMS.of(sub='eve'))}.{signature}")
    await refused(f"{header}.{encoded(CLAIMS.of(sub='eve'))}.")
    await refused(KEYS["ES256"].sign(CLAIMS.of(), kid="rsa"))


async def test_what_is_no_token_of_this_issuer_is_somebody_else_s() -> None:
    for credentials in (
        Credentials(),
        bearing("gl_abcdefghijkl_x.y.z"),
        bearing("opaque"),
        bearing("a.b"),
        bearing("a.b.c.d"),
        bearing(RSA.sign(CLAIMS.of(iss="https://other.example"))),
        bearing(RSA.sign(CLAIMS.of(iss=None))),
        Credentials(headers={"authorization": f"Basic {RSA.sign(CLAIMS.of())}"}),
    ):
        assert await authenticator().authenticate(credentials) is None


async def test_two_issuers_can_stand_beside_each_other() -> None:
    other = SigningKey.of("ES256", "rsa")
    both = AnyOf(
        authenticator(),
        authenticator(
            public_key(other.pem, kid="rsa"),
            issuer="https://other.example",
            claims=ClaimMapping(id_prefix="other"),
        ),
    )
    mine = await both.authenticate(bearing(RSA.sign(CLAIMS.of())))
    theirs = await both.authenticate(bearing(other.sign(CLAIMS.of(iss="https://other.example"))))
    assert [who and who.id for who in (mine, theirs)] == ["user:ada", "other:ada"]
    forged = other.sign(CLAIMS.of())  # signed by one, in the name of the other
    with pytest.raises(InvalidCredentials):
        await both.authenticate(bearing(forged))
    assert both.challenge == 'Bearer realm="gantline"'


async def test_who_sends_credentials_is_not_let_in_as_nobody() -> None:
    door = AnyOf(authenticator(), AllowAnonymous())
    nobody = await door.authenticate(Credentials())
    assert nobody is not None
    assert (nobody.id, nobody.roles) == ("anonymous", frozenset({Role.OPERATOR}))
    unknown = RSA.sign(CLAIMS.of(iss="https://other.example"))
    for credentials in (
        bearing(unknown),
        bearing("opaque"),
        bearing(RSA.sign(CLAIMS.of(exp=NOW - 60))),
        Credentials(headers={"x-api-key": "opaque"}),
        Credentials(headers={"authorization": "Basic dXNlcjpwYXNz"}),
    ):
        with pytest.raises(InvalidCredentials):
            await door.authenticate(credentials)


async def test_claims_are_mapped_as_the_operator_says() -> None:
    mapping = ClaimMapping(
        tenant="https://shop.example/tenant",
        roles=("realm_access", "roles"),
        role_names={"jobs-operators": Role.OPERATOR},
        system_role="root",
        scopes="scope",
        subjects=("docs", "ids"),
        job_types="types",
    )
    claims = CLAIMS.of(
        tenant="ignored",
        **{"https://shop.example/tenant": "b"},
        realm_access={"roles": ["jobs-operators", "root", "admin", 7, None]},
        scope="jobs:read jobs:cancel openid",
        docs={"ids": "s1 s2"},
        types=["t"],
    )
    assert await comes(RSA.sign(claims), claims=mapping) == Principal(
        id="user:ada",
        tenant_id="b",
        roles=frozenset({Role.OPERATOR}),
        scopes=frozenset({Action.READ, Action.CANCEL}),
        subjects=frozenset({"s1", "s2"}),
        job_types=frozenset({"t"}),
        is_system=True,
    )


async def test_a_claim_that_is_missing_gives_no_right() -> None:
    mapping = ClaimMapping(
        scopes="scope", job_types="types", default_tenant="d", system_role="root"
    )
    for extra in ({}, {"roles": {"admin": 1}, "scope": 7, "types": "", "subjects": None}):
        principal = await comes(RSA.sign(CLAIMS.of(tenant=None, **extra)), claims=mapping)
        assert principal == Principal(
            id="user:ada", tenant_id="d", scopes=frozenset(), job_types=frozenset()
        )


async def test_no_token_operates_the_installation_unless_that_is_set_up() -> None:
    principal = await comes(RSA.sign(CLAIMS.of(roles=["admin", "system", "is_system"])))
    assert principal.roles == {Role.ADMIN}
    assert not principal.is_system


@pytest.mark.parametrize(
    "options",
    [
        {"algorithms": ["none"]},
        {"algorithms": ["RS256", "NONE"]},
        {"algorithms": []},
        {"issuer": ""},
        {"audience": ""},
        {"audience": []},
    ],
    ids=str,
)
def test_what_would_let_everybody_in_cannot_be_set_up(options: dict[str, Any]) -> None:
    with pytest.raises(AuthMisconfigured):
        authenticator(**options)


def test_weak_and_strange_keys_cannot_be_set_up() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()  # noqa: S505  # that is the point
    strange = ec.generate_private_key(ec.SECP256K1()).public_key()
    for key in (weak, strange):
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        with pytest.raises(AuthMisconfigured, match="kind or size"):
            public_key(pem)
    with pytest.raises(AuthMisconfigured, match="PEM"):
        public_key("not a key")
    with pytest.raises(AuthMisconfigured, match="32 bytes"):
        shared_secret(b"short")
    with pytest.raises(AuthMisconfigured, match="no key"):
        StaticKeys()
    assert shared_secret(SECRET).algorithms == {"HS256"}


@pytest.mark.parametrize(
    "changes",
    [
        {"kty": "oct", "k": encoded(SECRET)},
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": None},
        {"d": "x"},
        {"alg": "HS256"},
        {"alg": "ES256"},
        {"n": "!"},
        {"n": 7},
        {"n": None},
        {"kid": 7},
        {"kty": None},
    ],
    ids=str,
)
def test_published_keys_that_are_not_for_us(changes: dict[str, Any]) -> None:
    assert key_from_jwk(RSA.jwk | changes) is None


def test_published_keys_that_are() -> None:
    for key in KEYS.values():
        found = key_from_jwk(key.jwk)
        assert found is not None
        assert key.algorithm in found.algorithms
        assert found.kid == key.kid
    narrowed = key_from_jwk(RSA.jwk | {"alg": "PS256", "key_ops": ["verify"]})
    assert narrowed is not None
    assert narrowed.algorithms == {"PS256"}


async def test_what_is_too_large_is_not_even_looked_at() -> None:
    await refused(RSA.sign(CLAIMS.of(filler="x" * LARGEST)))
    deep = b'{"iss":' + b"[" * 5000 + b"]" * 5000 + b"}"
    await refused(f"{encoded({'alg': 'RS256'})}.{encoded(deep)}.")


parts = st.binary(max_size=60).map(encoded) | st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(token=st.tuples(parts, parts, parts).map(".".join) | st.text())
@settings(max_examples=300, deadline=None)
async def test_noise_is_refused(token: str) -> None:
    await never_in(token)


@given(
    header=st.dictionaries(st.sampled_from(("alg", "kid", "typ", "crit", "b64", "jku")), values),
    claims=st.dictionaries(st.sampled_from(("iss", "aud", "sub", "exp", "nbf", "tenant")), values),
)
@settings(max_examples=300, deadline=None)
async def test_what_nobody_signed_is_refused(header: Any, claims: Any) -> None:
    claims = CLAIMS.of() | claims
    await never_in(f"{encoded({'alg': 'RS256'} | header)}.{encoded(claims)}.{encoded(b'x')}")


@given(
    claims=st.dictionaries(
        st.sampled_from(("aud", "sub", "exp", "nbf", "tenant", "roles", "subjects")), values
    )
)
@settings(max_examples=200, deadline=None)
async def test_what_the_issuer_signed_is_read_or_refused_and_never_a_crash(claims: Any) -> None:
    signed = KEYS["EdDSA"].sign(CLAIMS.of() | claims)
    try:
        principal = await authenticator().authenticate(bearing(signed))
    except InvalidCredentials:
        return
    assert principal is not None
    assert principal.tenant_id
    assert not principal.is_system


async def never_in(token: str) -> None:
    try:
        principal = await authenticator().authenticate(bearing(token))
    except InvalidCredentials:
        return
    assert principal is None


async def test_nothing_of_a_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tokens = [
        RSA.sign(CLAIMS.of(exp=NOW - 60)),
        RSA.sign(CLAIMS.of(sub="x" * 300)),
        SigningKey.of("RS256", "rsa").sign(CLAIMS.of()),
    ]
    with caplog.at_level(logging.DEBUG):
        for token in tokens:
            with pytest.raises(InvalidCredentials):
                await comes(token)
    assert caplog.text.count("a token was refused") == 3
    for token in tokens:
        assert not any(part in caplog.text for part in token.split("."))
    assert "x" * 300 not in caplog.text


async def test_the_leeway_is_the_operator_s() -> None:
    token = RSA.sign(CLAIMS.of(exp=NOW - 10))
    await comes(token)
    await refused(token, "has expired", leeway=timedelta(0))
