"""A worker that is cut off from its store stops its handlers before another one begins them.

One worker is connected through a gate that swallows what is said, the other directly. What counts
are the journals that the handlers keep themselves.
"""

from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import pytest

from gantline.testing.liveness import watching
from tests.proof import DEFAULT_LEASE_SECONDS, Proof, proof_on, say, until
from tests.proof_app import hold, jobs
from tests.servers.gate import BOTH_WAYS, Way, gate_to
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(1800)]

JOBS_PER_CUT: Final = 5
SHORT_LEASE_SECONDS: Final = 8.0
# Take-over is promised within the lease and 5 s; the machine may be slow.
TAKE_OVER_SECONDS: Final = 15.0
STARTS_WITHIN: Final = timedelta(seconds=10)

ways = pytest.mark.parametrize(
    "cut", [BOTH_WAYS, ("answers",), ("questions",)], ids=["black-hole", "no-answers", "deaf"]
)


@pytest.fixture(params=["postgres", "redis"])
def server(
    request: pytest.FixtureRequest,
) -> PostgresServer | RedisServer:
    found: PostgresServer | RedisServer = request.getfixturevalue(request.param)
    return found


async def test_a_cut_off_worker_and_its_successor_do_not_overlap(
    redis: RedisServer, tmp_path: Path
) -> None:
    lease = SHORT_LEASE_SECONDS
    await _cut_often(redis, tmp_path, cut=BOTH_WAYS, cuts=2, lease_seconds=lease)


@pytest.mark.wide
async def test_they_do_not_overlap_where_answers_are_lost(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    lease = SHORT_LEASE_SECONDS
    await _cut_often(postgres, tmp_path, cut=("answers",), cuts=2, lease_seconds=lease)


@pytest.mark.chaos
@ways
async def test_they_do_not_overlap_whichever_way_is_cut(
    server: PostgresServer | RedisServer, tmp_path: Path, cut: tuple[Way, ...]
) -> None:
    lease = SHORT_LEASE_SECONDS
    await _cut_often(server, tmp_path, cut=cut, cuts=2, lease_seconds=lease)


@pytest.mark.chaos
@ways
async def test_they_do_not_overlap_at_the_default_lease(
    server: PostgresServer | RedisServer, tmp_path: Path, cut: tuple[Way, ...]
) -> None:
    await _cut_often(server, tmp_path, cut=cut, cuts=20, lease_seconds=None)


async def _cut_often(
    server: PostgresServer | RedisServer,
    folder: Path,
    *,
    cut: tuple[Way, ...],
    cuts: int,
    lease_seconds: float | None,
) -> None:
    name = f"w{uuid4().hex}"
    options = {"schema": name} if isinstance(server, PostgresServer) else {"prefix": name}
    async with gate_to(server) as gate, proof_on(server.url(**options), folder) as proof:
        through_the_gate = proof.worker("cut", url=gate.url(**options), lease_seconds=lease_seconds)
        direct = proof.worker("direct", lease_seconds=lease_seconds)
        readiness = [through_the_gate.readiness, direct.readiness]
        async with (
            through_the_gate.running(),
            watching(jobs.store, readiness=readiness, within=STARTS_WITHIN) as oracle,
        ):
            for number in range(cuts):
                held = await _run_in_one_worker(proof, number)
                async with direct.running():
                    await direct.is_ready()
                    with gate.shut(*cut):
                        await _taken_over(proof, held, lease_seconds or DEFAULT_LEASE_SECONDS)
                    _flag(proof, number).touch()
                    await proof.drained()
        overlaps = proof.journal.overlaps()
        say(f"{cuts} cuts, {len(proof.journal.runs())} runs, {len(overlaps)} overlaps")
        assert not overlaps, "\n".join(
            f"{earlier.worker} still ran {earlier.job_id} when {later.worker} began it"
            for earlier, later in overlaps
        )
        oracle.check()


async def _run_in_one_worker(proof: Proof, number: int) -> set[UUID]:
    """Jobs that go on until the flag is there."""
    flag = str(_flag(proof, number))
    held = {handle.job_id for handle in await hold.submit_many([flag] * JOBS_PER_CUT)}
    await until(
        lambda: {run.job_id for run in proof.journal.runs()} >= held,
        seconds=60,
        what="every job has begun",
    )
    return held


async def _taken_over(proof: Proof, held: set[UUID], lease_seconds: float) -> None:
    await until(
        lambda: {run.job_id for run in proof.journal.runs() if run.worker == "direct"} >= held,
        seconds=lease_seconds + TAKE_OVER_SECONDS,
        what="every job is taken over",
    )


def _flag(proof: Proof, number: int) -> Path:
    return proof.folder / f"flag-{number}"
