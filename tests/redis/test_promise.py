"""What the store promises, by how its server is configured; and what the doctor says of it."""

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from gantline import Gantline
from gantline.cli.main import main
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.records import RecordWrite
from gantline.contract.retention import Retention
from gantline.stores.redis import open_store
from gantline.testing.factories import make_new
from tests.redis.conftest import opened
from tests.servers.redis import RedisServer

LEASE = timedelta(seconds=60)
DOCS = Path(__file__).parents[2] / "docs" / "redis.md"


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("appendonly", "appendfsync", "durability", "lost_on"),
    [
        ("no", "everysec", "none", "the end of the server"),
        ("yes", "no", "process", "a power cut, for the last half minute"),
        ("yes", "everysec", "process", "a power cut, for the last second or two"),
        ("yes", "always", "power_loss", "the loss of the disk"),
    ],
)
async def test_durability_is_what_the_server_is_configured_for(
    own_server: RedisServer, appendonly: str, appendfsync: str, durability: str, lost_on: str
) -> None:
    own_server.call("CONFIG", "SET", "appendonly", appendonly, "appendfsync", appendfsync)
    async with opened(own_server.url()) as store:
        promised = store.capabilities
    assert (promised.durability, promised.clock, promised.writers) == (durability, "server", "many")
    assert promised.ack_lost_on.startswith(lost_on)
    assert "failover" in promised.ack_lost_on
    assert promised.retention == Retention.split(timedelta(hours=1), timedelta(days=7))


async def test_a_server_that_hides_its_configuration_is_taken_for_less(
    own_server: RedisServer,
) -> None:
    own_server.call("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
    own_server.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
    async with opened(own_server.url().replace("redis://", "redis://app:pw@")) as store:
        assert store.capabilities.durability == "process"


async def test_a_user_with_the_rights_of_the_docs_can_do_everything(
    own_server: RedisServer,
) -> None:
    rights = "on >pw ~{gantline}* &{gantline}* +@all -@dangerous +info +role +config|get"
    own_server.call("ACL", "SETUSER", "app", *rights.split())
    url = own_server.url().replace("redis://", "redis://app:pw@")
    jobs, ran = Gantline(url), asyncio.Event()

    @jobs.job("note")
    async def note(value: int) -> None:
        ran.set()

    async with jobs, jobs.running():
        await note.submit(1)
        async with asyncio.timeout(60):
            await ran.wait()
        assert await jobs.store.counts(tenant_id=None)
    assert rights.replace("pw", "secret") in re.sub(r"\s+", " ", DOCS.read_text())


async def test_before_it_is_opened_nothing_is_promised_that_may_not_be_so() -> None:
    assert open_store("redis://host", clock=SystemClock()).capabilities.durability == "none"


async def test_it_has_no_transactions_to_join(url: str) -> None:
    async with opened(url) as store:
        assert not store.capabilities.caller_transaction
        with pytest.raises(StoreMisconfigured):
            await store.insert_in(object(), [])
        with pytest.raises(StoreMisconfigured):
            store.transaction()


def doctor(url: str) -> dict[str, dict[str, str]]:
    said = CliRunner().invoke(main, ["-o", "json", "--store", url, "doctor"])
    return {row["check"]: row for row in json.loads(said.stdout)}


def of(rows: dict[str, dict[str, str]], words: str) -> dict[str, str]:
    (row,) = [row for check, row in rows.items() if words in check]
    return row


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl"])
async def test_a_policy_that_removes_only_what_expires_removes_no_jobs(
    own_server: RedisServer, policy: str
) -> None:
    """It is the default of some hosts; and none of our keys expires."""
    own_server.call("CONFIG", "SET", "maxmemory-policy", policy)
    async with opened(own_server.url()) as store:
        await store.insert([make_new(number, idempotency_key=str(number)) for number in range(9)])
        await store.write_records([RecordWrite("space", "key", b"1", time_to_live=LEASE)])
        await store.lead("role", "me", lease=LEASE)
        assert next(one for one in await store.advice() if policy in one.what).is_good
    assert b"expires=0" in own_server.call("INFO", "keyspace")


def test_the_doctor_warns_of_eviction_and_of_missing_persistence(
    own_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own_server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    rows = doctor(own_server.url())
    evicting, appending = of(rows, "maxmemory-policy"), of(rows, "appendonly")
    assert (evicting["result"], appending["result"]) == ("warn", "warn")
    assert "noeviction" in evicting["advice"]
    assert "appendonly yes" in appending["advice"]
    assert "redis-py" in of(rows, "the store is")["check"]
    own_server.call("CONFIG", "SET", "maxmemory-policy", "noeviction", "appendonly", "yes")
    rows = doctor(own_server.url())
    assert (of(rows, "maxmemory-policy")["result"], of(rows, "appendonly")["result"]) == (
        "ok",
        "ok",
    )


def test_the_doctor_warns_of_replicas_that_are_missing(
    own_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = doctor(own_server.url(durability="replicated", deadline="1"))
    assert of(rows, "waits for 1 of 0 replicas")["result"] == "warn"
    assert not any("replicas" in check for check in doctor(own_server.url()))
