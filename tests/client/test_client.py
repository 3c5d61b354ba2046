"""The clients themselves: what they need, what they offer, and what they never tell."""

import inspect
import logging
import subprocess
import sys
import traceback
from typing import Any
from uuid import uuid4

import pytest

from gantline import client as package
from gantline.client.address import read_address
from gantline.client.async_client import AsyncClient
from gantline.client.blocking import Client
from gantline.client.exchange import Retries
from gantline.contract.errors import GantlineError, InvalidInput
from tests.client.conftest import KINDS, asking
from tests.servers.scripted import ScriptedServer, answering, saying

SECRET = "gl_0123456789abcdef_hushhushhushhush"  # noqa: S105  # nobody's
ONCE = Retries(attempts=1)


def test_the_blocking_client_has_every_verb_with_its_signature_and_text() -> None:
    verbs = {name for name in dir(AsyncClient) if not name.startswith("_")}
    for name in verbs - {"close"}:
        verb, method = getattr(AsyncClient, name), getattr(Client, name)
        assert inspect.signature(method) == inspect.signature(verb)
        assert method.__doc__ == verb.__doc__
        assert method.__doc__
    assert {name for name in vars(Client) if not name.startswith("_")} == verbs


def test_a_client_needs_neither_a_web_framework_nor_a_store() -> None:
    code = (
        "import sys, gantline.client\n"
        "wrong = ('starlette', 'uvicorn', 'fastapi', 'sqlite3', 'psycopg', 'jwt')\n"
        "loaded = [name for name in sys.modules if name.startswith(wrong)"
        " or name.startswith('gantline.stores.')]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_exported_is_there() -> None:
    assert sorted(package.__all__) == sorted(set(package.__all__))
    assert all(hasattr(package, name) for name in package.__all__)


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("https://jobs.example.com", "https://jobs.example.com"),
        ("https://jobs.example.com/", "https://jobs.example.com"),
        ("https://jobs.example.com:8443/gantline/", "https://jobs.example.com:8443/gantline"),
        ("https://jobs.example.com/gantline/api", "https://jobs.example.com/gantline"),
        (" http://localhost:8080 ", "http://localhost:8080"),
        ("http://127.0.0.1:8080/api/", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_address_is_everything_before_api(url: str, read: str) -> None:
    assert read_address(url).url == read


@pytest.mark.parametrize(
    "url",
    [
        "http://jobs.example.com",
        "http://10.0.0.1:8080",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://0.0.0.0:8080",
        "https://user:hush@jobs.example.com",
        "http://localhost@evil.example",
        "ftp://jobs.example.com",
        "jobs.example.com",
        "https://",
        "https://jobs.example.com/?key=hush",
        "https://jobs.example.com/#hush",
        "https://[::1",
        "https://jobs.example.com:99999",
        "file:///etc/passwd",
    ],
)
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_an_address_on_the_way_to_which_the_key_is_seen_is_refused(client: Any, url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        client(url, api_key=SECRET)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel", "\x00"])
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_key_that_is_none_is_refused_and_not_shown(client: Any, key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        client("https://jobs.example.com", api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_environment_names_the_server_and_the_key(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GANTLINE_URL", raising=False)
    make: Any = Client if kind == "blocking" else AsyncClient
    with pytest.raises(InvalidInput, match="GANTLINE_URL"):
        make()
    server = ScriptedServer([answering("500 Oh")])
    try:
        monkeypatch.setenv("GANTLINE_URL", server.url)
        monkeypatch.setenv("GANTLINE_API_KEY", SECRET)
        async with asking(kind, "", retries=ONCE) as ask:
            with pytest.raises(GantlineError):
                await ask("statistics")
        assert f"Bearer {SECRET}".encode() in server.requests[0]
    finally:
        server.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "act",
    [
        saying(b"HTTP/1.1 banana\r\n"),
        saying(),
        answering("302 Found", b"", "location: http://127.0.0.1:9/"),
        answering("401 No", SECRET.encode()),
        answering("500 Oh", SECRET.encode()),
        answering("200 OK", SECRET.encode()),
    ],
)
async def test_the_key_is_never_told(kind: str, act: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = ScriptedServer([act])
    try:
        async with asking(kind, server.url, SECRET, retries=ONCE) as ask:
            assert SECRET not in repr(ask.client)
            assert server.url in repr(ask.client)
            with pytest.raises(GantlineError) as caught:
                await ask("cancel", uuid4())
    finally:
        server.stop()
    assert SECRET.encode() in server.requests[0]
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(caught.value)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
async def test_what_goes_to_this_host_goes_through_no_proxy(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = ScriptedServer([answering("500 Oh")])
    server = ScriptedServer([answering("500 Oh")])
    try:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        async with asking(kind, server.url, SECRET, retries=ONCE) as ask:
            with pytest.raises(GantlineError):
                await ask("statistics")
        assert len(server.requests) == 1
        assert proxy.requests == []
    finally:
        server.stop()
        proxy.stop()


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_retries_that_are_none_are_refused(client: Any) -> None:
    with pytest.raises(InvalidInput, match=r"retries is 3\. Give Retries\(attempts="):
        client("http://127.0.0.1:9", retries=3)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_option_that_there_is_not_is_refused(kind: str) -> None:
    async with asking(kind, "http://127.0.0.1:9", retries=ONCE) as ask:
        for verb, about in (("submit", "sweep"), ("redrive_edited", uuid4())):
            with pytest.raises(TypeError, match=r"'prioritty' of a job\. Is priority meant"):
                await ask(verb, about, prioritty=1)
    with pytest.raises(TypeError, match=r"'colour' of a job\. There are at, correlation_id, delay"):
        package.new_job("sweep", colour=1)  # type: ignore[call-arg]


def test_closing_ends_the_pauses_of_other_threads() -> None:
    client = Client("http://127.0.0.1:9", retries=Retries(first_pause_seconds=9))
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.statistics()
