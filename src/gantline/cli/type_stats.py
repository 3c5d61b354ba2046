"""gantline type stats: how many jobs of each type there are, how long they wait and run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import click

from gantline.api.documents import ListedJob
from gantline.api.tallies import COUNTED
from gantline.cli.command import command
from gantline.cli.queues import COUNT_COLUMNS, count_cells
from gantline.cli.searching import internal_option
from gantline.cli.session import Cli, all_tenants_option
from gantline.cli.table import Columns
from gantline.contract.status import TERMINAL
from gantline.contract.webhook import RESERVED_TYPES

_WAIT: Final = "waited p50/p95 (s)"
_RUN: Final = "ran p50/p95 (s)"
_COLUMNS: Final = Columns(
    ("jobType", *COUNT_COLUMNS, _WAIT, _RUN, "slowest"),
    prose="slowest",
    expendable=("scheduled", "cancelled", "poisoned"),
)


@click.command()
@click.argument("names", nargs=-1, metavar="[TYPE]...")
@click.option(
    "--last",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="How many ended jobs of each type to measure: those that were submitted last.",
)
@internal_option
@all_tenants_option
@command
async def stats(cli: Cli, /, names: tuple[str, ...], last: int, internal: bool) -> None:
    """Count the jobs of each type; measure how long the last ones waited and ran, in seconds.

    Half took no longer than p50, all but a twentieth no longer than p95. The wait is that of jobs
    which ended with their first attempt, a delay included; the run is the last one.
    """
    counted: dict[str, Counter[str]] = {name: Counter() for name in names}
    rows = []
    async with cli.backend() as backend:
        for lane in await backend.lanes():
            is_own = lane.job_type.startswith(RESERVED_TYPES)
            if lane.job_type in names if names else internal or not is_own:
                of_type = counted.setdefault(lane.job_type, Counter())
                of_type.update(count_cells(lane))
        for name in sorted(counted):
            ended, _ = await backend.find(last, job_type=name, status=TERMINAL)
            numbers = {column: counted[name][column] for column in (*COUNTED, "due")}
            rows.append({"jobType": name, **numbers, **measure(ended)})
        empty = f"There are no jobs of {backend.whose}."
    cli.output.rows(rows, _COLUMNS, empty=empty)


def measure(ended: Sequence[ListedJob]) -> dict[str, Any]:
    """How long jobs waited and ran, as far as that is known of them."""
    waits: list[float] = []
    runs: list[tuple[float, str]] = []
    for job in ended:
        if job.started_at is None or job.completed_at is None:
            continue  # cancelled before it ran
        runs.append(((job.completed_at - job.started_at).total_seconds(), str(job.job_id)))
        if job.attempt == 1:
            due = max(job.created_at, job.scheduled_at or job.created_at)
            waits.append((job.started_at - due).total_seconds())
    run_seconds, slowest = max(runs, default=(None, None))
    wait, ran = _percentiles(waits), _percentiles([seconds for seconds, _ in runs])
    return {
        "measured": len(runs),
        "waitP50Seconds": wait[0],
        "waitP95Seconds": wait[1],
        "runP50Seconds": ran[0],
        "runP95Seconds": ran[1],
        "slowestSeconds": run_seconds,
        "slowestJobId": slowest,
        _WAIT: _joined(wait),
        _RUN: _joined(ran),
        "slowest": slowest and f"{_text(run_seconds)} s: {slowest}",
    }


def _percentiles(seconds: list[float]) -> tuple[float | None, float | None]:
    """The nearest values at 50 and 95 of 100."""
    if not seconds:
        return None, None
    ordered, most = sorted(seconds), len(seconds) - 1
    return ordered[round(0.5 * most)], ordered[round(0.95 * most)]


def _joined(both: tuple[float | None, float | None]) -> str:
    return "/".join(map(_text, both)) if both[0] is not None else ""


def _text(seconds: float | None) -> str:
    """Two digits, or whole seconds: all that a measurement is good for."""
    if seconds is None:
        return ""
    return f"{seconds:.0f}" if seconds >= 10 else f"{max(0.0, seconds):.2g}"
