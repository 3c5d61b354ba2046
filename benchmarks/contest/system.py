"""A system that is measured: ours, or a peer."""

import sys
from typing import Any, Final, NamedTuple

from benchmarks.contest.children import answer_of
from benchmarks.contest.environment import is_installed, python_of
from benchmarks.report import GANTLINE, Report


class System(NamedTuple):
    """A system with the settings that it drains fastest with."""

    name: str
    module: str
    """Where its `Contender` is."""
    slots: int
    drain_share: float = 1.0
    """How many jobs it drains for each one of ours, so that all take about as long."""
    requirements: tuple[str, ...] = ()
    has_bulk: bool = True
    """Whether many jobs can be submitted in one call."""

    @property
    def environment(self) -> str:
        return self.module.rpartition("on_")[2]

    def command(self, url: str, what: str, **options: float) -> list[str]:
        python = str(python_of(self.environment)) if self.requirements else sys.executable
        program = [python, "-m", "benchmarks.contest.child", self.module, url, what]
        return program + [f"--{name}={number}" for name, number in options.items()]

    def run(self, url: str, what: str, **options: float) -> Any:
        """Let a process do something, and give its answer."""
        return answer_of(self.command(url, what, **options))


OURS: Final = System(GANTLINE, "benchmarks.contest.on_gantline", slots=500)


def available(peers: tuple[System, ...], report: Report) -> list[System]:
    """Ours, and the peers that can be had."""
    return [
        OURS,
        *(peer for peer in peers if is_installed(peer.environment, peer.requirements, report)),
    ]
