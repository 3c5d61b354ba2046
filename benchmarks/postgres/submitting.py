"""Submitting on PostgreSQL, where a commit for each job would be the limit."""

from typing import Final

from benchmarks.contest import submitting
from benchmarks.contest.stage import Target
from benchmarks.contest.submitting import AT_ONCE, IN_BULK, ONE_BY_ONE
from benchmarks.contest.system import OURS
from benchmarks.postgres.stage import Stage
from benchmarks.postgres.systems import PGQUEUER
from benchmarks.report import Goal

_AS_FAST: Final = Target(Goal(least=1), PGQUEUER)


def run(stage: Stage) -> None:
    runs = submitting.run(stage, {ONE_BY_ONE: _AS_FAST, IN_BULK: _AS_FAST})
    if theirs := runs[ONE_BY_ONE].get(PGQUEUER):
        stage.compare(
            AT_ONCE.format(stage.scale.callers),
            runs[AT_ONCE][OURS],
            theirs,
            beside_name=f"{PGQUEUER.name} one by one",
            goal=Goal(least=10),
        )
