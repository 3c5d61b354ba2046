"""The peers on Redis, each as its documentation makes it fast without losing jobs.

All of them run a job at least once as they are set here; `on_saq` and `on_rq` say what by default
would not be run again. Results are off where that is a choice; Gantline keeps them, with the log.
"""

from typing import Final

from benchmarks.contest.system import System

_HIREDIS: Final = "hiredis==3.5.0"
# SAQ imports it, and does not say so.
_TYPING: Final = "typing-extensions==4.16.0"
_UVLOOP: Final = "uvloop==0.23.0"


def _peer(
    name: str, slots: int, kind: str, drain_share: float, *requirements: str, has_bulk: bool = False
) -> System:
    """`slots` of that kind are what a worker runs at once."""
    module = f"benchmarks.redis.on_{name.lower()}"
    return System(f"{name} ({slots} {kind})", module, slots, drain_share, requirements, has_bulk)


PEERS: Final = (
    _peer("FlexiQ", 200, "tasks", 0.08, "flexiq==2.1.0", has_bulk=True),
    _peer("dramatiq", 8, "threads", 0.08, "dramatiq[redis]==2.2.1", _HIREDIS),
    _peer("taskiq", 200, "tasks", 0.08, "taskiq==0.13.0", "taskiq-redis==1.2.4", _HIREDIS, _UVLOOP),
    _peer("arq", 100, "tasks", 0.06, "arq==0.28.0", _UVLOOP),
    _peer("SAQ", 100, "tasks", 0.05, "saq[redis,hiredis]==0.26.4", _TYPING, _UVLOOP),
    _peer("streaq", 100, "tasks", 0.05, "streaq==7.2.0", _UVLOOP, has_bulk=True),
    _peer("celery", 16, "threads", 0.04, "celery[redis]==5.7.0", _HIREDIS),
    _peer("RQ", 1, "job", 0.015, "rq==2.12.0", _HIREDIS, has_bulk=True),
)
