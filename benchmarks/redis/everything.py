"""`redis`: beside its peers without persistence, as they measure; then ours with each kind."""

from typing import Final

from benchmarks.bench import Bench
from benchmarks.contest import pick_up, submitting
from benchmarks.contest.stage import Target
from benchmarks.contest.submitting import AT_ONCE, IN_BULK, ONE_BY_ONE
from benchmarks.contest.system import OURS, System, available
from benchmarks.redis import draining
from benchmarks.redis.stage import Stage
from benchmarks.redis.systems import PEERS
from benchmarks.report import Goal
from tests.servers.redis import RedisServer

_AHEAD: Final = Target(Goal(least=1))
_PERSISTENCE: Final = {"AOF everysec": "everysec", "AOF always": "always"}


def run(bench: Bench) -> None:
    _run(bench, RedisServer(), available(PEERS, bench.report), where="")
    for name, sync in _PERSISTENCE.items():
        _run(bench, RedisServer(appendonly="yes", appendfsync=sync), [OURS], where=name)


def _run(bench: Bench, server: RedisServer, systems: list[System], *, where: str) -> None:
    try:
        stage = Stage(bench, server, systems, where=where)
        draining.run(stage)
        submitting.run(stage, dict.fromkeys((ONE_BY_ONE, AT_ONCE, IN_BULK), _AHEAD))
        pick_up.run_idle(stage, target=Target(Goal(most=1), best=min))
    finally:
        server.stop()
