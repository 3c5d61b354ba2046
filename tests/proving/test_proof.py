"""A proof finds a sound store sound, and says of a broken one what is broken."""

import os
from pathlib import Path
from uuid import uuid4

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import InvalidInput
from gantline.contract.records import RecordWrite
from gantline.manager.sessions import store_id
from gantline.proving.proof import Progress, ProofSettings, prove
from gantline.proving.report import BROKEN, PROVEN, Report
from gantline.proving.target import refuse_unless_empty
from gantline.stores import store_from_url
from gantline.testing.factories import make_new
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(180)]


async def _prove(
    url: str, *, seconds: float, seed: int = 3, wrap: str = "", settle_seconds: float = 60.0
) -> tuple[Report, list[Progress]]:
    progress: list[Progress] = []
    settings = ProofSettings(
        seconds=seconds,
        seed=seed,
        workers=3,
        clients=1,
        settle_seconds=settle_seconds,
        wrap=wrap and f"tests.proving.broken:{wrap}",
    )
    store = store_from_url(url, clock=SystemClock())
    report, _ = await prove(store, url, settings, label=url, notify=progress.append)
    return report, progress


async def test_a_sound_store_is_proven_and_what_the_proof_made_is_removed(tmp_path: Path) -> None:
    report, progress = await _prove(f"sqlite:///{tmp_path}/proof.db", seconds=10)

    assert report.verdict == PROVEN, report
    assert report.jobs > 50
    assert report.events > report.jobs
    assert sum(report.ended.values()) == report.jobs
    assert {kind for kind, count in report.faults.items() if count} >= {"kill", "lost answer"}
    assert report.no_connection_faults
    assert 0 < progress[-1].ended <= progress[-1].jobs <= report.jobs
    assert os.listdir(tmp_path) == []


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_a_sound_server_is_proven_though_its_connections_are_cut(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: PostgresServer | RedisServer = request.getfixturevalue(kind)
    name = f"p{uuid4().hex}"
    url = server.url(schema=name) if kind == "postgres" else server.url(prefix=name)

    report, _ = await _prove(url, seconds=15)

    assert report.verdict == PROVEN, report
    assert report.no_connection_faults == ""
    cuts = {"drop", "cut answer", "cut request", "delay"}
    assert {name for name, count in report.faults.items() if count} >= {"kill", *cuts}
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    assert await store.counts(tenant_id=None) == []
    await store.close()


@pytest.mark.parametrize(
    ("wrap", "found"),
    [
        ("forgets_jobs", "lost"),
        pytest.param("forgets_follow_ups", "lost", marks=pytest.mark.wide),
        pytest.param("hides_events", "events_missing", marks=pytest.mark.wide),
        pytest.param("lets_retries_wait", "unended", marks=pytest.mark.wide),
    ],
)
async def test_a_broken_store_is_reported(wrap: str, found: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/proof.db"

    report, _ = await _prove(url, seconds=8, wrap=wrap, settle_seconds=12)

    assert report.verdict == BROKEN, report
    assert getattr(report, found) > 0, report
    assert "BROKEN" in str(report)


@pytest.mark.wide
async def test_a_store_that_believes_runs_which_are_over_is_reported(tmp_path: Path) -> None:
    """Within a minute: by this seed workers are frozen for longer than a lease soon; on a busy
    machine that takes longer to matter."""
    url = f"sqlite:///{tmp_path}/proof.db"

    report, _ = await _prove(url, seconds=40, seed=438, wrap="confirms_what_it_refused")

    assert report.verdict == BROKEN, report
    assert report.doubled > 0, report


async def test_a_store_that_holds_a_job_is_refused_and_stays_as_it_was(store_url: str) -> None:
    new = make_new()
    store = store_from_url(store_url, clock=SystemClock())
    await store.open()
    await store.insert([new])
    await store.close()

    with pytest.raises(InvalidInput, match=r"holds jobs already.*Name an empty one|one process"):
        await _prove(store_url, seconds=1)

    if not store_url.startswith("memory"):
        await store.open()
        assert (await store.get([new.job.job_id], tenant_id=None))[0] is not None
        await store.close()


async def test_a_store_with_a_record_or_a_key_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/proof.db"
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    await store.write_records([RecordWrite("schedules", "nightly", b"{}")])
    await store.close()

    with pytest.raises(InvalidInput, match="holds records already"):
        await _prove(url, seconds=1)


async def test_a_store_on_which_a_worker_once_ran_is_empty(tmp_path: Path) -> None:
    store = store_from_url(f"sqlite:///{tmp_path}/proof.db", clock=SystemClock())
    await store.open()
    await store_id(store)

    await refuse_unless_empty(store, "it")

    await store.close()
