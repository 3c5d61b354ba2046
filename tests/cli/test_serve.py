"""gantline api and dev over HTTP: who is let in, and how they stop."""

import re
import signal
import socket
from pathlib import Path

import httpx2
import pytest

from gantline.auth.peppers import new_pepper
from tests.cli.conftest import Place, Program, assert_refused

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(60)]

SHOP = """
from gantline import Gantline

jobs = Gantline()

@jobs.job("add")
async def add(number: int) -> int:
    return number + 1
"""
WEB = """
from shop import jobs
from starlette.applications import Starlette
from starlette.routing import Mount

api = jobs.api(allow_anonymous=True)
app = Starlette(routes=[Mount("/jobs", api)], lifespan=jobs.lifespan(worker=True))
"""


@pytest.fixture
def shop(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    (place.folder / "shop.py").write_text(SHOP)
    (place.folder / "web.py").write_text(WEB)
    monkeypatch.setenv("GANTLINE_POLL_SECONDS", "0.1")
    monkeypatch.delenv("GANTLINE_KEY_PEPPER", raising=False)
    return place


def url_of(program: Program, prefix: str) -> str:
    program.wait_for(prefix)
    found = re.search(re.escape(prefix) + r"(http://\S+?)/api", program.stderr)
    assert found is not None, program.stderr
    return found[1]


def stop(program: Program) -> None:
    program.process.send_signal(signal.SIGTERM)
    assert program.exit_code() == 0, program.stderr
    assert program.stdout == ""
    assert "Traceback" not in program.stderr


def test_the_api_asks_for_a_key(shop: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    without = shop.run("api", "shop:jobs")
    assert_refused(without, 2, "GANTLINE_KEY_PEPPER", "gantline key pepper", "--allow-anonymous")
    monkeypatch.setenv("GANTLINE_KEY_PEPPER", f"1:{shop.run('key', 'pepper').stdout.strip()}")
    monkeypatch.setenv("GANTLINE_APP", "shop:jobs")
    secret = shop.json("key", "create", "tests")["key"]
    with shop.process("api", "--port", "0") as program:
        url = url_of(program, "Serving ")
        body = {"jobType": "add", "payload": 1}
        assert httpx2.post(f"{url}/api/jobs", json=body).status_code == 401
        headers = {"authorization": f"Bearer {secret}"}
        response = httpx2.post(f"{url}/api/jobs", json=body, headers=headers)
        assert response.status_code == 202
        assert "server" not in response.headers
        status = httpx2.get(url + response.json()["statusUrl"], headers=headers)
        assert status.json()["status"] == "Queued"
        assert httpx2.get(f"{url}/readyz").json()["ok"] is True
        stop(program)
    assert secret not in program.stderr


def test_everybody_is_let_in_only_when_told_so(shop: Place) -> None:
    with shop.process("api", "shop:jobs", "--port", "0", "--allow-anonymous") as program:
        url = url_of(program, "Serving ")
        assert "Everybody who can reach this address" in program.stderr
        assert httpx2.get(f"{url}/api/jobs").status_code == 200
        assert httpx2.get(f"{url}/").status_code == 404
        stop(program)


def test_an_application_of_ones_own_is_served_as_it_is(shop: Place) -> None:
    with shop.process("api", "web:app", "--port", "0") as program:
        url = url_of(program, "Serving ")
        headers = {"prefer": "wait=20"}
        body = {"jobType": "add", "payload": 1}
        response = httpx2.post(f"{url}/jobs/api/jobs", json=body, headers=headers, timeout=30)
        assert (response.status_code, response.json()["result"]) == (200, 2)
        stop(program)


@pytest.mark.parametrize("target", ["shop:jobs", "web:app"])
def test_a_server_for_this_host_is_called_by_its_names(shop: Place, target: str) -> None:
    """Whatever it serves: a page whose own name leads here would have a browser ask it."""
    anonymous = ["--allow-anonymous"] if target == "shop:jobs" else []
    with shop.process("api", target, "--port", "0", *anonymous) as program:
        url = url_of(program, "Serving ")
        path = "/healthz" if target == "shop:jobs" else "/jobs/healthz"
        for host, status in (("localhost", 200), ("127.0.0.1:1", 200), ("evil.example", 400)):
            response = httpx2.get(url + path, headers={"host": host})
            assert response.status_code == status
        assert "allowed_hosts" in response.text
        stop(program)


def test_a_server_behind_a_proxy_is_called_by_the_name_that_it_is_given(
    shop: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for named, status in (("shop.example, other.example", 400), ("*", 200)):
        monkeypatch.setenv("GANTLINE_ALLOWED_HOSTS", named)
        with shop.process("api", "shop:jobs", "--port", "0", "--allow-anonymous") as program:
            url = url_of(program, "Serving ")
            for host, answer in (("Shop.Example", 200), ("localhost", 200), ("evil", status)):
                response = httpx2.get(f"{url}/api/jobs", headers={"host": host})
                assert response.status_code == answer
            stop(program)


def test_a_development_server_is_open_to_this_host_only(shop: Place) -> None:
    with shop.process("dev", "shop:jobs", "--no-reload", "--port", "0") as program:
        url = url_of(program, "the API is at ")
        headers = {"prefer": "wait=20"}
        body = {"jobType": "add", "payload": 1}
        response = httpx2.post(f"{url}/api/jobs", json=body, headers=headers, timeout=30)
        assert (response.status_code, response.json()["result"]) == (200, 2)
        rebound = httpx2.get(f"{url}/api/jobs", headers={"host": "evil.example"})
        assert rebound.status_code == 400
        assert httpx2.post(f"{url}/api/queues/default/pause").status_code == 200
        start = httpx2.get(f"{url}/")
        assert start.headers["cache-control"] == "no-store"
        links = re.findall(r'href="([^"]+)"', start.text)
        assert {"/api/docs", "/api/jobs", "/readyz"} < {*links}
        assert {httpx2.get(url + link).status_code for link in links} == {200}
        stop(program)


def test_a_development_server_serves_no_other_address(shop: Place) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):  # noqa: S104  # which is refused
        result = shop.run("dev", "shop:jobs", "--no-reload", "--host", host)
        assert result.exit_code == 2
        assert "gantline api" in result.stderr


def test_a_port_that_is_taken_is_told(shop: Place, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = shop.run("api", "shop:jobs", "--allow-anonymous", "--port", port)
        assert_refused(shop.run("dev", "shop:jobs", "--port", port), 1, port, "--port")
        assert result.exit_code == 1
        assert "--port" in result.stderr
        assert "Traceback" not in result.stderr


def test_only_a_proxy_that_is_named_says_who_calls(
    shop: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token's cookie is for TLS only where the page came by TLS."""
    monkeypatch.setenv("GANTLINE_KEY_PEPPER", f"1:{new_pepper()}")
    for named, is_secure in (("", False), ("10.0.0.0/8", False), ("::1, 127.0.0.1", True)):
        monkeypatch.setenv("GANTLINE_TRUSTED_PROXIES", named)
        with shop.process("api", "shop:jobs", "--port", "0", "--allow-anonymous") as program:
            url = url_of(program, "Serving ")
            said = {"x-forwarded-proto": "https"}
            response = httpx2.post(f"{url}/api/events/token", headers=said)
            assert ("; Secure" in response.headers["set-cookie"]) is is_secure
            stop(program)


@pytest.mark.parametrize("named", ["*", "proxy.example", "10.0.0.1/8"])
def test_a_proxy_is_named_by_its_address(
    shop: Place, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("GANTLINE_TRUSTED_PROXIES", named)
    assert_refused(shop.run("api", "shop:jobs", "--allow-anonymous"), 2, "trusted_proxies")
