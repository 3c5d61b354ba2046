"""Keys, servers and clients as they are used: processes of `gantline api` on one store."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gantline.client.blocking import Client
from gantline.client.exchange import Retries
from gantline.contract.errors import Forbidden, InvalidCredentials, JobNotFound, RateLimited
from gantline.contract.status import JobStatus
from tests.servers.http_api import ApiProcess

REPOSITORY = Path(__file__).parents[2]
PEPPER = {"GANTLINE_KEY_PEPPER": "1:0123456789abcdefghijklmnopqrstuvwxyz"}
ONCE = Retries(attempts=1)
# So slow that nothing is refilled while a test lasts.
FORTY = "1/h:40"


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gantline.db"
    url: str = request.getfixturevalue("postgres").url(schema=f"end_{uuid4().hex[:8]}")
    return url


def gantline(store: str, *words: str) -> Any:
    """Run a command that must succeed; return its data."""
    done = subprocess.run(
        [sys.executable, "-m", "gantline.cli.main", "--store", store, "-o", "json", *words],
        env=os.environ | PEPPER | {"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def serving(store: str, count: int = 1, **environment: str) -> Iterator[list[ApiProcess]]:
    servers = [
        ApiProcess("tests.client.shop:jobs", store=store, **PEPPER, **environment)
        for _ in range(count)
    ]
    try:
        yield servers
    finally:
        for server in servers:
            server.stop()


def admitted(client: Client, times: int) -> int:
    count = 0
    for _ in range(times):
        try:
            client.job_types()
            count += 1
        except RateLimited:
            continue
    return count


def test_a_key_opens_every_server_of_its_store_until_it_is_revoked(store: str) -> None:
    made = gantline(store, "key", "create", "ci", "--tenant", "acme", "--role", "operator")
    other = gantline(store, "key", "create", "ci", "--tenant", "evil", "--role", "admin")
    with serving(store, 2) as (one, two):
        with (
            Client(one.url, api_key=made["key"]) as here,
            Client(two.url, api_key=made["key"]) as there,
        ):
            accepted = here.submit("mail", "a@example.com", subject="s1")
            assert there.status(accepted.job_id).status is JobStatus.QUEUED
            assert there.job(accepted.job_id).created_by == f"key:{made['keyId']}"
            assert [one.job_id for one in there.jobs(subject="s1")] == [accepted.job_id]
            with Client(two.url, api_key=other["key"]) as stranger, pytest.raises(JobNotFound):
                stranger.status(accepted.job_id)
            with pytest.raises(Forbidden):
                here.pause_queue("default")
            assert there.cancel(accepted.job_id).status is JobStatus.CANCELLED
            assert here.redrive(accepted.job_id).status is JobStatus.QUEUED
        gantline(store, "key", "revoke", made["keyId"], "--tenant", "acme", "--yes")
    with (
        serving(store) as (one,),
        Client(one.url, api_key=made["key"]) as late,
        pytest.raises(InvalidCredentials) as caught,
    ):
        late.statistics()
    assert made["key"] not in str(caught.value)


def test_processes_share_the_limit_of_a_tenant(store: str) -> None:
    keys = [
        gantline(store, "key", "create", name, "--tenant", "acme", "--role", "viewer")["key"]
        for name in ("one", "two")
    ]
    other = gantline(store, "key", "create", "other", "--tenant", "evil", "--role", "viewer")["key"]
    with serving(store, 2, GANTLINE_RATE_LIMIT_PER_TENANT=FORTY) as servers:
        clients = [
            Client(server.url, api_key=key, retries=ONCE) for server in servers for key in keys
        ]
        counts = [0] * len(clients)
        for _ in range(15):
            for place, client in enumerate(clients):
                counts[place] += admitted(client, 1)
        assert sum(counts) == 40
        assert min(counts) > 0
        with pytest.raises(RateLimited) as caught:
            clients[0].job_types()
        assert 1 <= caught.value.retry_after_seconds <= 3600
        assert caught.value.correlation_id
        with Client(servers[0].url, api_key=other) as stranger:
            assert admitted(stranger, 5) == 5
        for client in clients:
            client.close()


def test_processes_share_the_limit_of_a_key(store: str) -> None:
    narrow = gantline(store, "key", "create", "narrow", "--role", "viewer", "--rate-limit", "1/h:8")
    wide = gantline(store, "key", "create", "wide", "--role", "viewer")
    with serving(store, 2, GANTLINE_RATE_LIMIT_PER_KEY=FORTY) as servers:
        for key, expected in ((narrow["key"], 8), (wide["key"], 40)):
            count = 0
            clients = [Client(server.url, api_key=key, retries=ONCE) for server in servers]
            for _ in range(30):
                count += sum(admitted(client, 1) for client in clients)
            assert count == expected
            for client in clients:
                client.close()


def test_a_client_waits_as_long_as_a_limit_asks_for(store: str) -> None:
    key = gantline(store, "key", "create", "x", "--role", "viewer", "--rate-limit", "1/s:1")["key"]
    with serving(store) as (server,), Client(server.url, api_key=key) as client:
        assert admitted(client, 3) == 3
