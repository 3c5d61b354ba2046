"""The peers on PostgreSQL."""

from typing import Final

from benchmarks.contest.system import System

# Procrastinate takes its psycopg without the library that makes it fast.
_PSYCOPG: Final = "psycopg[binary]==3.3.8"
PGQUEUER: Final = System(
    "PgQueuer", "benchmarks.postgres.on_pgqueuer", 200, 0.5, ("pgqueuer[asyncpg]==1.6.0",)
)
PEERS: Final = (
    PGQUEUER,
    System("awa", "benchmarks.postgres.on_awa", 500, 0.25, ("awa-pg==0.6.9",)),
    System(
        "Procrastinate",
        "benchmarks.postgres.on_procrastinate",
        30,
        0.05,
        (_PSYCOPG, "procrastinate==3.10.0"),
    ),
)
