"""Where webhooks may be sent: nowhere but to public addresses, whatever the URL or the DNS says.

Each row is refused twice: when an endpoint is registered, and when something is sent.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gantline.webhooks.http_sender import HttpSender
from gantline.webhooks.ip_ranges import read_networks
from gantline.webhooks.retry import NoResponse, WebhookResponse
from gantline.webhooks.url_guard import TargetRefused, UrlGuard, parse_target
from tests.servers.scripted import ScriptedServer, answering
from tests.servers.tls import Authority, tls_server

PUBLIC = "93.184.215.14"
LOOPBACK = read_networks("127.0.0.0/8")
UNREACHABLE = NoResponse(
    "NETWORK_ERROR", "The receiver cannot be reached, or webhooks may not go there."
)


class Names:
    """A server of names that answers as a test says, and remembers what it was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


NOT_PUBLIC = [
    "0.0.0.0",  # noqa: S104  # nothing is bound to it
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",  # metadata of Alibaba
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",  # the host agent of Azure
    "169.254.169.254",  # metadata of most clouds
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",  # metadata of Oracle
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.7",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:0:5db8:d70e::f5ff:fffe",  # Teredo: a public server, a client at 10.0.0.1
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2002:a9fe:a9fe::1",
    "2606:2800:21f:cb07:0:5efe:10.0.0.1",  # ISATAP: whoever routes it gets an address of ours
    "2606:2800:21f:cb07:200:5efe:169.254.169.254",
    "2606:2800:21f:cb07:100:5efe:127.0.0.1",
    "fe80::5efe:93.184.215.14",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata of AWS by IPv6
    "fe80::1",
    "fec0::1",
    "ff02::1",
]

TRICKS = [
    "http://hooks.example.com/",  # not encrypted
    "https://hooks.example.com:8443/",
    "https://hooks.example.com:22/",
    "https://hooks.example.com:0/",
    "https://hooks.example.com:99999/",
    "https://user@hooks.example.com/",
    "https://user:password@hooks.example.com/",
    "https://hooks.example.com@127.0.0.1/",
    "https://127.0.0.1#@hooks.example.com/",
    "https://127.0.0.1\\@hooks.example.com/",
    "https://hooks.example.com\\.127.0.0.1/",
    "https://2130706433/",
    "https://017700000001/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.0.1./",
    "https://127.0.0.01/",
    "https://1.2.3.4.5/",
    "https://hooks.example.0x7f/",
    "https://[::1%25lo]/",
    "https://[fe80::1%eth0]/",
    "https://[::ffff:7f00:1",
    "https://[1.2.3.4]/",
    "https://１２７.０.０.１/",  # noqa: RUF001  # which is the trick
    "https://①②⑦.⓪.⓪.①/",
    "https://hooks。example。com/",
    "https://bücher.example/",
    "https://%31%32%37.0.0.1/",
    "https://hooks.example.com%00.evil.example/",
    "https://hooks_example.com/",
    "https://-hooks.example.com/",
    "https://hooks..example.com/",
    "https://hooks.example.com./",
    "https:///etc/passwd",
    "https://",
    "https:hooks.example.com",
    "HTTPS://hooks.example.com/",
    "https://hooks.example.com/ HTTP/1.1\r\nHost: evil",
    "https://hooks.example.com/\r\nX-Evil: 1",
    "https://hooks.example.com/\t",
    " https://hooks.example.com/",
    "https://hooks.example.com/#fragment",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "//hooks.example.com/",
    "",
    "https://" + "a" * 64 + ".example.com/",
    "https://hooks.example.com/" + "a" * 2048,
]


async def sent_to(url: str, guard: UrlGuard) -> WebhookResponse | NoResponse:
    sender = HttpSender(guard)
    return await sender.post(url, {}, b"{}", timeout_seconds=5, tenant_id="default")


@pytest.mark.parametrize("address", NOT_PUBLIC)
async def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    url = f"https://[{address}]/" if ":" in address else f"https://{address}/"
    guard = UrlGuard()
    with pytest.raises(TargetRefused):
        await guard.check(url, tenant_id="default")
    answer = await sent_to(url, guard)
    assert isinstance(answer, NoResponse)
    assert answer == UNREACHABLE


@pytest.mark.parametrize("address", NOT_PUBLIC)
async def test_a_name_that_leads_there_is_refused_also_beside_a_public_one(address: str) -> None:
    for found in ([address], [PUBLIC, address], [address, PUBLIC]):
        guard = UrlGuard(resolve=Names(found).resolve)
        with pytest.raises(TargetRefused) as refused:
            await guard.check("https://hooks.example.com/", tenant_id="default")
        assert address not in str(refused.value), "an address of ours is nobody's business"
        answer = await sent_to("https://hooks.example.com/", guard)
        assert isinstance(answer, NoResponse)
        assert answer == UNREACHABLE


@pytest.mark.parametrize("url", TRICKS)
async def test_a_url_that_is_not_plain_is_refused(url: str) -> None:
    guard = UrlGuard(resolve=Names([PUBLIC]).resolve)
    with pytest.raises(TargetRefused):
        await guard.check(url, tenant_id="default")
    answer = await sent_to(url, guard)
    assert isinstance(answer, NoResponse)
    assert answer == UNREACHABLE


@pytest.mark.parametrize(
    "found",
    [
        [PUBLIC],
        ["2606:2800:21f:cb07::1"],
        ["64:ff9b::5db8:d70e"],  # behind NAT64 everything public looks like this
        ["::ffff:93.184.215.14"],
        ["2002:5db8:d70e::1"],
        ["2606:2800:21f:cb07:0:5efe:93.184.215.14"],
    ],
)
async def test_public_addresses_are_let_through(found: list[str]) -> None:
    await UrlGuard(resolve=Names(found).resolve).check(
        "https://hooks.example.com/a/b?c=d", tenant_id="default"
    )


async def test_a_name_that_cannot_be_found_is_refused() -> None:
    async def nothing(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    for guard in (UrlGuard(resolve=nothing), UrlGuard(resolve=Names([]).resolve)):
        with pytest.raises(TargetRefused):
            await guard.check("https://hooks.example.com/", tenant_id="default")
        assert isinstance(await sent_to("https://hooks.example.com/", guard), NoResponse)


async def test_a_name_that_turns_private_after_registration_is_refused_at_send() -> None:
    names = Names([PUBLIC], ["127.0.0.1"])
    guard = UrlGuard(resolve=names.resolve)
    await guard.check("https://hooks.example.com/", tenant_id="default")
    answer = await sent_to("https://hooks.example.com/", guard)
    assert isinstance(answer, NoResponse)
    assert answer == UNREACHABLE


async def unknown(host: str, port: int) -> Sequence[str]:
    raise OSError("no such name")


async def hanging(host: str, port: int) -> Sequence[str]:
    await asyncio.Event().wait()
    return []


@pytest.mark.parametrize("url", ["https://inside.example/", "http://inside.example:8080/"])
async def test_a_refusal_does_not_tell_which_names_there_are(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may register endpoints could map our network by asking for one name after another."""
    caplog.set_level("INFO", "gantline.webhooks")
    monkeypatch.setattr("gantline.webhooks.url_guard._RESOLVE_SECONDS", 0.01)
    found = {
        "cannot be found": unknown,
        "not found soon": hanging,
        "10.1.2.3": Names(["10.1.2.3"]).resolve,
        "169.254.169.254": Names([PUBLIC, "169.254.169.254"]).resolve,
    }
    if url.startswith("http:"):
        found = {"cannot be found": unknown, "https": Names([PUBLIC]).resolve}
    told = set()
    for cause, resolve in found.items():
        caplog.clear()
        with pytest.raises(TargetRefused) as refused:
            await UrlGuard(resolve=resolve).check(url, tenant_id="acme")
        told.add(str(refused.value))
        assert cause in caplog.text, "who operates the server is told"
        assert "acme" in caplog.text
    assert len(told) == 1


async def test_a_delivery_does_not_tell_what_is_behind_a_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "gantline.webhooks")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    found = {
        "cannot be found": UrlGuard(resolve=unknown),
        "TimeoutError": UrlGuard(resolve=hanging),
        "10.1.2.3": UrlGuard(ports=frozenset({free}), resolve=Names(["10.1.2.3"]).resolve),
        "ConnectError": UrlGuard(allow=LOOPBACK, resolve=Names(["127.0.0.1"]).resolve),
    }
    for cause, guard in found.items():
        caplog.clear()
        answer = await HttpSender(guard).post(
            f"https://inside.example:{free}/",
            {},
            b"{}",
            timeout_seconds=0.05 if cause == "TimeoutError" else 5,
            tenant_id="acme",
        )
        assert answer == UNREACHABLE, cause
        assert cause in caplog.text
        assert "acme" in caplog.text


async def test_names_are_looked_up_by_the_system_without_stopping_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = UrlGuard(allow=LOOPBACK + read_networks("::1"))
    await guard.check("http://localhost:1/", tenant_id="default")
    with pytest.raises(TargetRefused, match="public addresses"):
        await guard.check("https://nosuch.invalid/", tenant_id="default")
    over = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: over.wait(30) and [])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await guard.check("https://hooks.example.com/", tenant_id="default")
    monkeypatch.undo()
    await guard.check("http://localhost:1/", tenant_id="default")
    over.set()


async def test_names_that_hang_stop_only_the_tenant_that_named_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look-up cannot be stopped, and there are only so many at a time."""
    over, usual = threading.Event(), socket.getaddrinfo

    def look_up(host: str, *args: Any, **options: Any) -> Any:
        if host.endswith(".tarpit.example"):
            over.wait(30)
            raise OSError("no such name")
        return usual(host, *args, **options)

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    guard = UrlGuard(allow=LOOPBACK + read_networks("::1"))
    hanging = [
        asyncio.create_task(guard.check(f"https://{number}.tarpit.example/", tenant_id="bad"))
        for number in range(200)
    ]
    refused, _ = await asyncio.wait(hanging, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert refused, "most are refused at once"
    with pytest.raises(TargetRefused):
        await guard.check("http://localhost:1/", tenant_id="bad")
    for number in range(50):
        await guard.check("http://localhost:1/", tenant_id=f"good-{number}")
    over.set()
    await asyncio.gather(*hanging, return_exceptions=True)
    await guard.check("http://localhost:1/", tenant_id="bad")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer([answering("200 OK", b"thanks")])
    yield server
    server.stop()


def port_of(server: ScriptedServer) -> str:
    return server.url.rpartition(":")[2]


async def test_the_name_is_resolved_once_and_that_very_address_is_asked(
    server: ScriptedServer,
) -> None:
    """A second look at the DNS could find another address than the one that was checked."""
    names = Names(["127.0.0.1"], ["10.255.255.1"])
    guard = UrlGuard(allow=LOOPBACK, resolve=names.resolve)
    url = f"http://hooks.example.com:{port_of(server)}/a?b=c"
    answer = await sent_to(url, guard)
    assert isinstance(answer, WebhookResponse)
    assert (answer.status, answer.body) == (200, b"thanks")
    assert names.asked == ["hooks.example.com"]
    (request,) = server.requests
    assert request.startswith(b"POST /a?b=c HTTP/1.1\r\n")
    assert f"Host: hooks.example.com:{port_of(server)}\r\n".encode() in request


async def test_a_redirect_is_not_followed() -> None:
    inside = ScriptedServer([answering("200 OK")])
    outside = ScriptedServer([answering("302 Found", b"", f"location: {inside.url}/")])
    try:
        answer = await sent_to(outside.url + "/", UrlGuard(allow=LOOPBACK))
        assert isinstance(answer, WebhookResponse)
        assert answer.status == 302
        assert inside.requests == []
    finally:
        outside.stop()
        inside.stop()


async def test_no_proxy_of_the_environment_is_used(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert isinstance(await sent_to(server.url + "/", UrlGuard(allow=LOOPBACK)), WebhookResponse)


async def test_the_certificate_is_checked_against_the_name(tmp_path: Path) -> None:
    """A server that cannot prove its name gets no byte of the body, though its address is right."""
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=authority.file)
    guard = UrlGuard(allow=LOOPBACK, resolve=Names(["127.0.0.1"]).resolve)
    async with tls_server(authority.context_for("hooks.example.com")) as receiver:
        sender = HttpSender(guard, ssl_context=trusting)
        right = f"https://hooks.example.com:{receiver.port}/"
        wrong = f"https://other.example.com:{receiver.port}/"
        answer = await sender.post(right, {}, b"a secret", timeout_seconds=5, tenant_id="default")
        assert isinstance(answer, WebhookResponse)
        assert answer.status == 200
        assert receiver.names == ["hooks.example.com"], "the name is told to the server (SNI)"
        assert len(receiver.received) == 1
        answer = await sender.post(wrong, {}, b"a secret", timeout_seconds=5, tenant_id="default")
        assert isinstance(answer, NoResponse)
        assert answer.code == "NETWORK_ERROR"
        assert len(receiver.received) == 1


async def test_the_allow_list_opens_what_it_names_and_nothing_besides() -> None:
    guard = UrlGuard(allow=read_networks("10.1.0.0/16, fd12::/16"))
    for url in ("http://10.1.2.3:8080/", "https://10.1.2.3/", "http://[fd12::1]:8080/"):
        await guard.check(url, tenant_id="default")
    for url in ("http://10.2.0.1/", "https://10.2.0.1/", "https://127.0.0.1/", "http://[fd13::1]/"):
        with pytest.raises(TargetRefused):
            await guard.check(url, tenant_id="default")
    mapped = UrlGuard(
        allow=read_networks("10.1.0.0/16"), resolve=Names(["::ffff:10.1.2.3"]).resolve
    )
    await mapped.check("http://inside.example/", tenant_id="default")
    both = UrlGuard(allow=read_networks("10.1.0.0/16"), resolve=Names(["10.1.2.3", PUBLIC]).resolve)
    await both.check("https://hooks.example.com/", tenant_id="default")
    with pytest.raises(TargetRefused):
        await both.check("http://hooks.example.com/", tenant_id="default")


def test_what_is_sent_is_what_was_read() -> None:
    assert parse_target("https://Hooks.Example.com") == ("https", "hooks.example.com", 443, "/")
    assert parse_target("https://a.example?x=1") == ("https", "a.example", 443, "/?x=1")
    assert parse_target("https://[2001:DB8::1]:8443/a").host == "2001:db8::1"
