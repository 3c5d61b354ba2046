"""What happens in a run: the settings, what clients do, and what goes wrong.

A script is data: a run that broke a rule can be stored, repeated, and shortened step by step.
"""

from typing import Literal

import msgspec

from gantline.flow.limit import Limit
from gantline.testing.simulation.application import Plan
from gantline.testing.simulation.network import Chances

StoreKind = Literal["memory", "sqlite"]
Action = Literal["cancel", "stop", "redrive", "delete"]
"""`stop` is the cancel of what runs."""
Mishap = Literal[
    "crash",
    "deploy",
    "freeze",
    "block",
    "cut off",
    "slow",
    "freeze store",
    "refuse",
    "jump",
    "reboot",
]
"""`slow`: answers take seconds. `refuse`: all calls of a verb fail. `reboot`: every worker crashes,
and the clock was set when they start again."""


class _Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    at: float
    """Seconds since the beginning."""


class Submit(_Step, frozen=True, kw_only=True):
    job_type: str
    plan: Plan
    count: int = 1
    priority: int | None = None
    delay: float = 0.0
    expires: float = 0.0
    """After so many seconds it is not started any more; 0: at any time."""
    key: str = ""
    tenant: str = "default"
    group: str = ""
    over_http: bool = False


class Stream(_Step, frozen=True, kw_only=True):
    """A client that submits a job, waits until it has ended, and submits the next."""

    job_type: str
    plans: tuple[Plan, ...]
    """Of its jobs, one after the other."""
    tenant: str = "default"
    group: str = ""
    seconds: float


class Act(_Step, frozen=True, kw_only=True):
    """An operator acts on jobs that were submitted before: the n-th, and those after it."""

    what: Action
    first: int
    count: int = 1


class Switch(_Step, frozen=True, kw_only=True):
    """Something is switched off for a time."""

    what: Literal["pause queue", "pause type", "disable type", "close store"]
    name: str = ""
    seconds: float


class Recur(_Step, frozen=True, kw_only=True):
    """A schedule is made, and removed after a time."""

    name: str
    every: float
    seconds: float


class Wait(_Step, frozen=True, kw_only=True):
    """A client waits for a job to end."""

    which: int
    seconds: float


class Trouble(_Step, frozen=True, kw_only=True):
    """Something goes wrong with a worker, the store or the clock."""

    what: Mishap
    worker: int = 0
    seconds: float = 0.0
    verb: str = ""
    """Which calls are refused; `writes` for all that change something."""


Step = Submit | Stream | Act | Switch | Recur | Wait | Trouble


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run depends on."""

    seed: int
    store: StoreKind
    workers: int
    slots: int
    """Of each queue."""
    slots_in_all: int | None = None
    lease: float
    drain: float = 10.0
    retention: float | None = None
    is_gentle: bool = False
    """Nothing happens to processes, to the store or to the clock, but that calls fail and workers
    are stopped in order: so no run may be lost."""
    limits: tuple[tuple[str, tuple[Limit, ...]], ...] = ()
    """By type; on a store that holds to them."""
    chances: Chances
    steps: tuple[Step, ...]
    faults: tuple[tuple[str, int], ...] | None = None
    """Which calls fail, by process and number; None: as the chances say."""
