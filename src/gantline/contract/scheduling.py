"""Scheduling: when a job runs and before whom, at submit and at every retry. A pure strategy."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from gantline.contract.job import Job


class Placement(NamedTuple):
    """Where a job goes in its queue: how long from now, and with which priority."""

    delay: timedelta
    priority: int


SchedulingStrategy = Callable[[Job, Placement], Placement]
"""Given a job and where it would go, say where it goes."""


def as_asked(job: Job, placement: Placement) -> Placement:
    """The default: exactly what the submitter or the retry strategy asked for."""
    return placement
