"""The parts of `flow`, each on all stores: cost of limits, places used, rates, a flood, peers."""

from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.bench import Bench
from benchmarks.flow import costs, flood, peers, places, rates
from benchmarks.flow.engines import Engine, Postgres, Redis, Sqlite
from benchmarks.flow.stage import Stage
from benchmarks.report import GANTLINE
from tests.servers.missing import ServerMissing

_ENGINES: Final[tuple[Callable[[Bench], Engine], ...]] = (Sqlite, Postgres, Redis)


def _on_each_store(part: Callable[[Stage], None], bench: Bench) -> None:
    for make in _ENGINES:
        try:
            engine = make(bench)
        except ServerMissing as missing:
            bench.report.leave_out(GANTLINE, what=f"flow on {make.__name__}", reason=str(missing))
            continue
        try:
            part(Stage(bench, engine))
        finally:
            engine.stop()


PARTS: Final[dict[str, Callable[[Bench], None]]] = {
    f"flow_{name}": partial(_on_each_store, part)
    for name, part in {
        "costs": costs.run,
        "places": places.run,
        "rates": rates.run,
        "flood": flood.run,
        "peers": peers.run,
    }.items()
}
