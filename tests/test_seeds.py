"""What the seeds ask for and no other test shows; docs/seeds.md names the tests of all the rest."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from gantline import Context, Gantline
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.job import Job
from gantline.contract.policy import Placement
from gantline.stores import _registered, store_from_url
from gantline.stores.memory import MemoryStore
from gantline.testing import JobsTest
from gantline.wakeups.trigger import parse_trigger
from tests.api.application import ByName
from tests.api.conftest import asker_of


class Document(msgspec.Struct, rename="camel"):
    doc_id: str
    row_version: int = 5


class Analysis(msgspec.Struct, rename="camel"):
    doc_id: str
    analysis_type: str = "summary"


class Email(msgspec.Struct, rename="camel"):
    message_id: str


@pytest.mark.parametrize(
    ("payload", "template", "key"),
    [
        (Document("d1"), "doc-{doc_id}-v{row_version}", "doc-d1-v5"),
        (Analysis("d1"), "analysis-{doc_id}-{analysis_type}", "analysis-d1-summary"),
        (Email("m-7@mail"), "email-{message_id}", "email-m-7@mail"),
    ],
    ids=["document", "analysis", "email"],
)
def test_a_type_makes_the_keys_of_the_pattern(
    payload: msgspec.Struct, template: str, key: str
) -> None:
    """Seed 000, "Idempotency key patterns"; twice the same, since it is made of the payload."""
    jobs = Gantline("memory://")

    async def handle(payload: object) -> None: ...

    handle.__annotations__["payload"] = type(payload)
    job = jobs.job("keyed", idempotency_key=template)(handle)
    made = [job.prepare(payload).job.idempotency_key for _ in range(2)]
    assert made == [key, key]


async def test_what_was_processed_is_marked_for_seven_days() -> None:
    """Seed 000, "Job handler implementation"."""
    jobs = Gantline("memory://")
    sent: list[str] = []

    @jobs.job("mail")
    async def mail(address: str, ctx: Context) -> None:
        if await ctx.once(address):
            sent.append(address)

    async with JobsTest(jobs) as kit:
        for days, times in ((0, 1), (6, 1), (2, 2)):
            kit.clock.advance(timedelta(days=days))
            await mail.submit("ada")
            assert (await kit.drain()).completed == 1
            assert len(sent) == times, f"{days} days later"


async def test_without_a_correlation_id_a_job_has_one_of_its_own() -> None:
    jobs = Gantline("memory://")

    @jobs.job("ring")
    async def ring() -> None: ...

    async with jobs, asker_of(jobs.api(authenticator=ByName())) as ask:
        handle = await ring.submit(None)
        assert (await handle.status()).job.correlation_id == str(handle.job_id)
        accepted = await ask("alice", "POST", "/api/jobs", {"jobType": "ring"})
        status = (await ask("alice", "GET", accepted.json()["statusUrl"])).json()
        assert status["correlationId"] == accepted.headers["x-correlation-id"]
        assert status["correlationId"] != str(handle.job_id)


async def test_a_status_says_when_the_job_was_created_and_last_changed() -> None:
    """Seed 003, `DefaultJobManager`: CreatedAt and LastUpdatedAt."""
    jobs = Gantline("memory://")

    @jobs.job("ring")
    async def ring() -> None: ...

    async with JobsTest(jobs) as kit, asker_of(jobs.api(authenticator=ByName())) as ask:
        accepted = await ask("alice", "POST", "/api/jobs", {"jobType": "ring"})
        url = accepted.json()["statusUrl"]
        created = (await ask("alice", "GET", url)).json()
        assert datetime.fromisoformat(created["createdAt"]) == kit.clock.now()
        assert created["updatedAt"] == created["createdAt"]
        kit.clock.advance(60)
        await kit.drain()
        ended = (await ask("alice", "GET", url)).json()
        assert ended["createdAt"] == created["createdAt"]
        assert datetime.fromisoformat(ended["updatedAt"]) == kit.clock.now()


def test_the_trigger_of_the_bpc_worker_is_a_url() -> None:
    """Seed 002, section 1: exchange and routing key are options, with its key as the default."""
    trigger = parse_trigger("amqp://bpc:secret@broker/vhost?exchange=bpc")
    assert (trigger.exchange, trigger.routing_key) == ("bpc", "jobs.trigger")
    other = parse_trigger("amqp://broker/?exchange=bpc&routing_key=work.there")
    assert other.routing_key == "work.there"


async def test_a_tenant_may_have_another_priority() -> None:
    """Seed 002, section 8, names it as its future."""

    def paying_first(job: Job, asked: Placement) -> Placement:
        return Placement(asked.delay, 1 if job.tenant_id == "paying" else asked.priority)

    jobs = Gantline("memory://")

    @jobs.job("compile", schedule=paying_first)
    async def compile_passport() -> None: ...

    async with jobs:
        handles = [await compile_passport.submit(None, tenant=name) for name in ("paying", "other")]
        assert [(await handle.status()).priority for handle in handles] == [1, 2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package that registers a store, as docs/guides/writing-a-store.md says."""
    (tmp_path / "theirs.py").write_text(
        "from gantline.stores.memory import MemoryStore\n\n\n"
        "def open_store(url, *, clock):\n    return MemoryStore(clock=clock)\n"
    )
    installed = tmp_path / "theirs-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[gantline.stores]\nmydb = theirs:open_store\n")
    monkeypatch.syspath_prepend(tmp_path)
    _registered.cache_clear()
    yield "mydb://somewhere"
    _registered.cache_clear()
    sys.modules.pop("theirs", None)


def test_a_store_of_others_is_found_by_its_scheme(package: str) -> None:
    assert isinstance(store_from_url(package, clock=SystemClock()), MemoryStore)
    with pytest.raises(StoreMisconfigured, match="'otherdb'"):
        store_from_url("otherdb://somewhere", clock=SystemClock())
