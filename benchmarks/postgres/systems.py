"""The systems that are measured: ours, and the peers that can be had."""

import json
import subprocess
import sys
from typing import Any, Final, NamedTuple

from benchmarks.peer_environment import PEER_PYTHON, is_installed
from benchmarks.report import WINDLASS, Report
from benchmarks.worker.children import ROOT

_LONGEST_SECONDS: Final = 120
# Procrastinate takes its psycopg without the library that makes it fast.
_PSYCOPG: Final = "psycopg[binary]==3.3.8"


class System(NamedTuple):
    """A system with the settings that it drains fastest with."""

    name: str
    module: str
    slots: int
    drain_share: float = 1.0
    """How many jobs it drains for each one of ours, so that all take about as long."""
    requirements: tuple[str, ...] = ()

    def command(self, url: str, what: str, **options: float) -> list[str]:
        python = str(PEER_PYTHON) if self.requirements else sys.executable
        program = [python, "-m", "benchmarks.postgres.child", self.module, url, what]
        return program + [f"--{name}={number}" for name, number in options.items()]

    def run(self, url: str, what: str, **options: float) -> Any:
        """Let a process do something; the last line that it prints is its answer, in JSON."""
        done = subprocess.run(
            self.command(url, what, **options),
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LONGEST_SECONDS,
        )
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None


OURS: Final = System(WINDLASS, "windlass", slots=500)
PGQUEUER: Final = System("PgQueuer", "pgqueuer", 200, 0.5, ("pgqueuer[asyncpg]==1.6.0",))
_PEERS: Final = (
    PGQUEUER,
    System("awa", "awa", 500, 0.25, ("awa-pg==0.6.9",)),
    System("Procrastinate", "procrastinate", 30, 0.05, (_PSYCOPG, "procrastinate==3.10.0")),
)


def available_systems(report: Report) -> list[System]:
    """Leave out, with a line that says why, what cannot be had."""
    return [OURS, *(peer for peer in _PEERS if _can_be_had(peer, report))]


def _can_be_had(peer: System, report: Report) -> bool:
    return all(is_installed(requirement, report) for requirement in peer.requirements)
