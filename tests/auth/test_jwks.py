"""Published keys: fetched when they are needed, kept while they may be, never without bounds."""

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from gantline.auth import jwks
from gantline.auth.jwks import LARGEST, PublishedKeys, fetch
from gantline.auth.jwt_authenticator import JwtAuthenticator
from gantline.contract.errors import (
    AuthMisconfigured,
    IdentityProviderUnavailable,
    InvalidCredentials,
)
from gantline.testing.clock import FakeClock
from tests.auth.tokens import AUDIENCE, ISSUER, Claims, SigningKey, bearing
from tests.servers.web import Answer, WebServer, body

FIRST, SECOND = SigningKey.of("ES256", "first"), SigningKey.of("ES256", "second")


def key_set(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.jwk for key in keys]}).encode()


class Provider:
    """An identity provider: answers with its keys, or as a test wants."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.keys = [FIRST]
        self.asked = 0
        self.is_down = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.published = PublishedKeys("https://x.example/keys", clock=self.clock, fetch=self.fetch)

    async def fetch(self, url: str) -> bytes:
        self.asked += 1
        content, is_down = key_set(*self.keys), self.is_down
        await self.may_answer.wait()
        if is_down:
            raise IdentityProviderUnavailable("Nobody answers.")
        return content

    async def fetched(self) -> None:
        """Wait for what is fetched beside the requests."""
        if self.published._fetching:
            await self.published._fetching

    async def knows(self, key: SigningKey) -> bool:
        return await self.published.find(key.kid, key.algorithm) is not None


async def test_the_set_is_fetched_once_for_many() -> None:
    provider = Provider()
    assert await asyncio.gather(*(provider.knows(FIRST) for _ in range(20))) == [True] * 20
    assert provider.asked == 1


async def test_a_key_that_was_rotated_in_works_at_once() -> None:
    provider = Provider()
    await provider.knows(FIRST)
    provider.clock.advance(10)
    provider.keys = [SECOND]
    assert await provider.knows(SECOND)
    assert not await provider.knows(FIRST)


async def test_made_up_ids_cannot_make_us_ask_without_end() -> None:
    provider = Provider()
    for number in range(100):
        assert not await provider.knows(SigningKey("ES256", None, f"made-up-{number}"))
        provider.clock.advance(0.5)
    assert provider.asked == 5  # once every ten seconds
    assert await provider.knows(FIRST)


async def test_an_old_set_is_used_while_a_new_one_is_fetched() -> None:
    provider = Provider()
    await provider.knows(FIRST)
    provider.clock.advance(300)
    provider.may_answer.clear()
    provider.keys = [SECOND]
    assert await provider.knows(FIRST)
    provider.may_answer.set()
    await provider.fetched()
    assert provider.asked == 2
    assert await provider.knows(SECOND)
    assert not await provider.knows(FIRST)


async def test_a_provider_that_is_down_is_borne_for_an_hour() -> None:
    provider = Provider()
    await provider.knows(FIRST)
    provider.is_down = True
    for _ in range(59):
        provider.clock.advance(60)
        assert await provider.knows(FIRST)
        await provider.fetched()
    provider.clock.advance(60)
    with pytest.raises(IdentityProviderUnavailable):
        await provider.knows(FIRST)
    provider.is_down = False
    with pytest.raises(IdentityProviderUnavailable):
        await provider.knows(FIRST)  # asked a moment ago
    provider.clock.advance(10)
    assert await provider.knows(FIRST)


async def test_a_provider_that_never_answered_lets_nobody_in() -> None:
    provider = Provider()
    provider.is_down = True
    for _ in range(5):
        with pytest.raises(IdentityProviderUnavailable):
            await provider.knows(FIRST)
    assert provider.asked == 1
    provider.is_down = False
    provider.clock.advance(10)
    assert await provider.knows(FIRST)


async def test_an_unknown_key_is_refused_and_not_a_failure_while_the_provider_is_down() -> None:
    provider = Provider()
    await provider.knows(FIRST)
    provider.clock.advance(60)
    provider.is_down = True
    assert not await provider.knows(SECOND)


async def test_one_who_gives_up_does_not_stop_the_others() -> None:
    provider = Provider()
    provider.may_answer.clear()
    waiting = [asyncio.create_task(provider.knows(FIRST)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    provider.may_answer.set()
    assert await asyncio.gather(*waiting[1:]) == [True, True]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"keys":{}}',
        b'{"keys":[]}',
        b'{"keys":[7]}',
        b'{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"first"}]}',
        b'{"keys":' + b"[" * 100_000,
        json.dumps({"keys": [FIRST.jwk] * 101}).encode(),
    ],
    ids=lambda content: repr(content[:30]),
)
async def test_what_is_no_key_set_is_no_reason_to_forget_the_last(content: bytes) -> None:
    provider = Provider()
    await provider.knows(FIRST)
    answers = [content]

    async def nonsense(url: str) -> bytes:
        return answers[0]

    provider.published._fetch = nonsense
    provider.clock.advance(300)
    assert await provider.knows(FIRST)
    assert not await provider.knows(SECOND)
    assert await provider.knows(FIRST)


@pytest.fixture
def server() -> Iterator[WebServer]:
    server = WebServer(body(key_set(FIRST)))
    yield server
    server.stop()


async def test_a_token_is_checked_with_what_a_server_publishes(server: WebServer) -> None:
    clock = FakeClock()
    door = JwtAuthenticator(
        PublishedKeys(f"{server.url}/keys", clock=clock),
        issuer=ISSUER,
        audience=AUDIENCE,
        clock=clock,
    )
    claims = Claims(clock.now()).of()
    for _ in range(3):
        principal = await door.authenticate(bearing(FIRST.sign(claims)))
        assert principal is not None
    assert server.paths == ["/keys"]
    clock.advance(11)
    server.answer = body(key_set(FIRST, SECOND))
    assert await door.authenticate(bearing(SECOND.sign(claims))) is not None
    forged = SigningKey.of("ES256", "second")
    with pytest.raises(InvalidCredentials):
        await door.authenticate(bearing(forged.sign(claims)))
    assert len(server.paths) == 2


async def test_nothing_is_sent_that_is_not_needed(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies of the environment, and passwords in .netrc, are not for us."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert await fetch(server.url) == key_set(FIRST)
    (headers,) = server.headers
    assert headers["accept-encoding"] == "identity"
    assert not {"authorization", "cookie"} & headers.keys()


def endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b"x" * 65536)


@pytest.mark.parametrize(
    "answer",
    [
        body(b"", status=302, location="http://127.0.0.1:1/"),
        body(b"", status=301, location="/again"),
        body(b"{}", status=404),
        body(b"{}", status=500),
        body(b"x" * (LARGEST + 1)),
        endless,
    ],
    ids=["302", "301", "404", "500", "too large", "endless"],
)
async def test_any_other_answer_is_refused(server: WebServer, answer: Answer) -> None:
    server.answer = answer
    with pytest.raises(IdentityProviderUnavailable):
        await fetch(f"{server.url}/keys")
    assert server.paths == ["/keys"]  # no redirect was followed


async def test_a_compressed_answer_is_not_unfolded(server: WebServer) -> None:
    server.answer = body(b"\x1f\x8b\x08", content_encoding="gzip")
    assert await fetch(server.url) == b"\x1f\x8b\x08"


async def test_a_server_that_drips_is_given_up(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte comes in time, the whole never does."""

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not server.may_go_on.wait(0.01):
            request.wfile.write(b" ")
            request.wfile.flush()

    monkeypatch.setattr(jwks, "TIMEOUT_SECONDS", 0.2)
    server.answer = drip
    with pytest.raises(IdentityProviderUnavailable, match="TimeoutError"):
        await fetch(server.url)


async def test_nobody_there_is_told() -> None:
    with pytest.raises(IdentityProviderUnavailable, match="cannot be fetched"):
        await fetch("http://127.0.0.1:1/keys")


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example/keys",
        "ftp://login.example/keys",
        "file:///etc/passwd",
        "https://",
        "login.example",
        "",
        "http://localhost.example/keys",
    ],
)
def test_keys_come_by_https_only(url: str) -> None:
    with pytest.raises(AuthMisconfigured, match="https"):
        PublishedKeys(url, clock=FakeClock())


def test_this_machine_may_be_asked_without_it() -> None:
    for host in ("localhost", "127.0.0.1:8080", "[::1]:80"):
        PublishedKeys(f"http://{host}/keys", clock=FakeClock())


async def test_a_second_event_loop_fetches_for_itself() -> None:
    provider = Provider()
    await provider.knows(FIRST)
    found: Any = await asyncio.to_thread(lambda: asyncio.run(provider.knows(FIRST)))
    assert found
