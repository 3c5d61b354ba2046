"""How long one job waits beside very much of one tenant, and something of ever more others."""

import sys
import time
from typing import Final

from benchmarks.contest.children import answer_of, ended, started
from benchmarks.flow.spans import percentile
from benchmarks.flow.stage import Stage
from benchmarks.report import Goal
from benchmarks.scale import short

_FILL_SECONDS: Final = 1800.0
_SLOTS: Final = 40
_HOLD_MS: Final = 20
# What the others have all together must last for as long as is measured.
_OF_OTHERS: Final = 50_000
# One for the first turn, which it would be fair to give before that of whoever comes after it.
_LEAST_EACH: Final = 3
_GREETING_SLOTS: Final = 500
_WARM_UP_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 2.0
_APART_MS: Final = 50
# One turnover of a slot, and 50 ms.
_GOAL: Final = Goal(most=_HOLD_MS + 50)


def run(stage: Stage) -> None:
    scale = stage.scale
    with stage.engine.emptied() as url:
        stage.say(f"a flood of {short(scale.flood_jobs)} jobs of one tenant")
        _call(url, "fill", name="flood", tenants=1, each=scale.flood_jobs)
        _call(url, "greet", tenants=1, slots=1)
        for tenants in scale.flood_tenants:
            each = max(_LEAST_EACH, _OF_OTHERS // tenants)
            stage.say(f"and {each} each of {short(tenants)} others")
            _call(url, "fill", name=f"other-{tenants}", tenants=tenants, each=each)
            _call(url, "greet", tenants=tenants, slots=_GREETING_SLOTS)
            delays = _delays_ms(url, name=f"late-{tenants}", probes=scale.flood_probes)
            where = f"beside {short(scale.flood_jobs)} of one and {short(tenants)} other tenants"
            for percent, goal in ((50, None), (99, _GOAL)):
                value = percentile(delays, percent)
                stage.add(f"wait of one job {where}, p{percent}", "ms", [value], goal=goal)


def _delays_ms(url: str, *, name: str, probes: int) -> list[float]:
    with started(_command(url, "serve", slots=_SLOTS, hold_ms=_HOLD_MS)) as child:
        time.sleep(_WARM_UP_SECONDS)
        _call(url, "probe", name=name, each=probes, apart_ms=_APART_MS)
        time.sleep(_SETTLE_SECONDS)
        delays: list[int] = ended(child)
    # One that has not started has waited at least since it was submitted.
    missing = probes - len(delays)
    return [delay / 1e6 for delay in delays] + [_SETTLE_SECONDS * 1000] * missing


def _call(url: str, what: str, **options: object) -> None:
    answer_of(_command(url, what, **options), longest_seconds=_FILL_SECONDS)


def _command(url: str, what: str, **options: object) -> list[str]:
    given = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "benchmarks.flow.flood_child", url, what, *given]
