"""How much is measured: the default sizes, and small ones for a quick look."""

from typing import Final

import msgspec


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of everything. `runs` is how often each figure is taken; its median is reported."""

    runs: int
    batch_jobs: int
    single_jobs: int
    callers: int
    jobs_per_caller: int
    few: int
    many: int
    most: int
    types: int
    claims_per_run: int
    reads_per_run: int
    worker_runs: int
    drain_jobs: int
    peer_jobs: int
    thread_jobs: int
    process_jobs: int
    pick_ups: int
    postgres_jobs: int
    redis_jobs: int
    half_busy_seconds: float
    idle_seconds: float
    depth_jobs: int
    snapshot_seconds: float
    stored_jobs: int
    http_seconds: float
    steady_runs: int
    steady_minutes: int
    flow_jobs: int
    flow_seconds: float
    flood_jobs: int
    flood_tenants: tuple[int, ...]
    flood_probes: int


FULL: Final = Scale(
    runs=5,
    batch_jobs=20_000,
    single_jobs=500,
    callers=100,
    jobs_per_caller=20,
    few=1_000,
    many=100_000,
    most=1_000_000,
    types=1_000,
    claims_per_run=20,
    reads_per_run=20,
    worker_runs=3,
    drain_jobs=20_000,
    peer_jobs=3_000,
    thread_jobs=10_000,
    process_jobs=10_000,
    pick_ups=200,
    postgres_jobs=30_000,
    redis_jobs=30_000,
    half_busy_seconds=5,
    idle_seconds=30,
    depth_jobs=20_000,
    snapshot_seconds=120,
    stored_jobs=1_000_000,
    http_seconds=5.0,
    steady_runs=1,
    steady_minutes=20,
    flow_jobs=30_000,
    flow_seconds=10,
    flood_jobs=1_000_000,
    flood_tenants=(10, 1_000, 100_000),
    flood_probes=200,
)
QUICK: Final = Scale(
    runs=3,
    batch_jobs=2_000,
    single_jobs=50,
    callers=100,
    jobs_per_caller=2,
    few=1_000,
    many=5_000,
    most=20_000,
    types=100,
    claims_per_run=5,
    reads_per_run=5,
    worker_runs=1,
    drain_jobs=5_000,
    peer_jobs=1_000,
    thread_jobs=2_000,
    process_jobs=1_000,
    pick_ups=50,
    postgres_jobs=8_000,
    redis_jobs=8_000,
    half_busy_seconds=2,
    idle_seconds=5,
    depth_jobs=6_000,
    snapshot_seconds=15,
    stored_jobs=20_000,
    http_seconds=1.0,
    steady_runs=1,
    steady_minutes=4,
    flow_jobs=10_000,
    flow_seconds=3,
    flood_jobs=200_000,
    flood_tenants=(10, 1_000),
    flood_probes=50,
)


def short(number: int) -> str:
    """Write 1000 as 1k and 1000000 as 1M."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)
