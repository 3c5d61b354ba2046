"""Profiles: which stresses are strong in a run. A seed has one, so runs are small and differ."""

from typing import Final

import msgspec

from gantline.testing.simulation.application import End
from gantline.testing.simulation.script import Action, Mishap

Span = tuple[float, float]
"""From, to."""


class Odds(msgspec.Struct, frozen=True, kw_only=True):
    """How often each kind of step comes, relative to the others."""

    submit: int = 45
    act: int = 17
    switch: int = 7
    recur: int = 4
    wait: int = 4
    trouble: int = 23


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """From what a script is drawn. Where there are several values, each is as likely."""

    name: str
    seconds: tuple[float, ...] = (30.0, 60.0, 120.0)
    workers: tuple[int, ...] = (1, 2, 3, 4)
    slots: tuple[int, ...] = (1, 2, 5, 20)
    slots_in_all: tuple[int | None, ...] = (None,)
    lease: tuple[float, ...] = (5.0, 10.0, 30.0)
    drain: tuple[float, ...] = (10.0,)
    retention: tuple[float | None, ...] = (None, 5.0, 60.0)
    fault: tuple[float, ...] = (0.0, 0.005, 0.02, 0.1)
    hint_lost: tuple[float, ...] = (0.0, 0.1, 1.0)
    latency: tuple[float, ...] = (0.0, 0.001, 0.01, 0.2)
    odds: Odds = Odds()
    acts: tuple[Action, ...] = ("cancel", "stop", "redrive", "redrive", "delete")
    acted_on: tuple[int, ...] = (1, 1, 5)
    """With how many jobs an operator does it."""
    counts: tuple[int, ...] = (1, 1, 3, 20)
    """How many jobs are submitted at once."""
    handler_seconds: tuple[Span, ...] = (
        *((0.0, 0.0), (0.0, 0.0), (0.01, 0.01), (0.5, 0.5), (3.0, 3.0)),
        (0.0, 20.0),
    )
    ends: tuple[End, ...] = ("retry", "fail", "snooze", "error", "transaction", "transaction")
    other_end: float = 0.35
    """How likely an attempt does not just return."""
    crash: float = 0.01
    """How likely an attempt takes its process along."""
    swallows: float = 0.1
    """How likely a handler goes on after it was asked to stop."""
    keyed: float = 0.2
    keys: int = 3
    every: tuple[float, ...] = (1.0, 5.0, 20.0)
    """Of schedules."""
    recur_seconds: Span = (5.0, 60.0)
    """How long they are there."""
    mishaps: tuple[Mishap, ...] = (
        *("crash", "deploy", "freeze", "block", "cut off", "slow", "freeze store", "refuse"),
        *("jump", "reboot"),
    )
    mishap_seconds: tuple[Span, ...] = (*((0.1, 10.0),) * 4, (0.1, 90.0))
    refused: tuple[str, ...] = ("apply", "insert", "renew", "claim", "write_records")
    jump_seconds: tuple[Span, ...] = ((-200.0, 200.0),)
    is_gentle: bool = False


_MIXED: Final = Profile(name="mixed")

# What may rightly cost a run its lease is left out. A store that takes no ends is no such thing.
_GENTLE: Final = Profile(
    name="gentle",
    fault=(0.0, 0.005, 0.02),
    mishaps=("refuse",),
    refused=("apply", "insert", "insert", "write_records"),
    odds=Odds(recur=10, trouble=12),
    every=(5.0, 20.0),
    recur_seconds=(50.0, 100.0),
    is_gentle=True,
)

# Workers are stopped while they claim, and while the store does not take what has ended.
_DEPLOYS: Final = Profile(
    name="deploys",
    seconds=(40.0,),
    workers=(1, 2),
    slots=(2, 5, 20),
    lease=(5.0,),
    fault=(0.0, 0.0, 0.02),
    latency=(0.01, 0.2),
    odds=Odds(submit=60, switch=2, trouble=30),
    counts=(1, 3, 10),
    handler_seconds=((0.0, 0.0), (0.0, 1.0), (3.0, 10.0), (5.0, 20.0)),
    crash=0.0,
    mishaps=("deploy", "deploy", "refuse"),
    mishap_seconds=((0.5, 4.0), (6.0, 14.0)),
    refused=("apply", "writes", "writes"),
)

# Workers are away from their store for about as long as a lease lasts, with work under way.
_OUTAGES: Final = Profile(
    name="outages",
    seconds=(120.0,),
    workers=(2, 3),
    slots=(2, 5),
    lease=(5.0, 10.0),
    retention=(None, 60.0),
    fault=(0.0, 0.02),
    hint_lost=(0.1,),
    odds=Odds(submit=50, act=10, switch=2, recur=6, wait=2, trouble=30),
    counts=(1, 3),
    handler_seconds=((3.0, 3.0), (2.0, 30.0), (10.0, 30.0)),
    ends=("retry", "error", "transaction", "transaction"),
    other_end=0.5,
    crash=0.0,
    swallows=0.3,
    mishaps=("cut off", "slow", "slow", "freeze store", "freeze", "refuse", "refuse", "block"),
    mishap_seconds=((3.0, 12.0), (5.0, 25.0)),
    refused=("apply", "apply", "renew"),
)

# Long queues and few slots; and workers that are stopped while the store fails.
_BACKLOG: Final = Profile(
    name="backlog",
    seconds=(30.0, 60.0),
    workers=(1, 2),
    slots=(2, 5),
    slots_in_all=(1, 2, 4),
    fault=(0.0, 0.02, 0.1),
    latency=(0.001, 0.01),
    odds=Odds(submit=70, act=10, switch=0, recur=2, wait=2, trouble=16),
    counts=(1, 3, 20),
    handler_seconds=((0.0, 0.0), (0.01, 0.01), (0.5, 0.5)),
    crash=0.0,
    mishaps=("deploy", "refuse"),
    mishap_seconds=((1.0, 10.0),),
    refused=("apply", "insert", "claim"),
)

# Jobs that end their worker, and many that ran beside them.
_KILLERS: Final = Profile(
    name="killers",
    seconds=(60.0, 120.0),
    workers=(1, 2),
    slots=(1, 2, 5),
    slots_in_all=(None, 2, 3),
    lease=(5.0,),
    fault=(0.0, 0.02),
    odds=Odds(submit=60, act=5, switch=2, recur=2, wait=4, trouble=12),
    counts=(1, 3),
    handler_seconds=((0.5, 0.5), (3.0, 3.0), (5.0, 10.0)),
    crash=0.08,
    mishaps=("crash", "reboot"),
    jump_seconds=((0.0, 0.0),),
)

# One key for many jobs, which are cancelled, ended, removed and submitted again.
_KEYS: Final = Profile(
    name="keys",
    seconds=(30.0, 60.0),
    lease=(10.0, 30.0),
    hint_lost=(0.0, 1.0),
    odds=Odds(submit=60, act=40, switch=1, recur=3, wait=2, trouble=4),
    acts=("cancel", "stop", "stop", "redrive", "delete", "delete"),
    acted_on=(1, 5, 20),
    counts=(1, 1, 3),
    handler_seconds=((0.0, 0.0), (0.5, 0.5), (1.0, 5.0), (0.0, 10.0)),
    ends=("fail", "retry", "retry", "error", "snooze"),
    other_end=0.6,
    keyed=0.7,
    keys=2,
)

# The clock is set, also while no worker is there to renew anything.
_CLOCK: Final = Profile(
    name="clock",
    seconds=(60.0,),
    workers=(1, 2),
    lease=(10.0, 30.0, 30.0),
    retention=(None, 60.0),
    fault=(0.0, 0.02),
    odds=Odds(submit=60, act=6, switch=2, recur=5, wait=2, trouble=14),
    counts=(1, 3, 3),
    handler_seconds=((0.5, 0.5), (3.0, 3.0), (2.0, 8.0)),
    ends=("retry", "transaction", "transaction", "transaction"),
    other_end=0.7,
    crash=0.0,
    swallows=0.2,
    mishaps=("jump", "jump", "reboot"),
    jump_seconds=((-250.0, -150.0), (20.0, 150.0)),
)

PROFILES: Final = (
    *(_CLOCK, _MIXED, _OUTAGES, _MIXED, _DEPLOYS, _GENTLE, _KILLERS, _OUTAGES, _BACKLOG, _KEYS),
)
"""The profile of a seed is the one at its last digit."""
