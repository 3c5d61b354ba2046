"""gantline events: what happened to jobs, and what happens."""

from datetime import datetime
from typing import Any, Final

import click

from gantline.cli.backend import MOST_EVENTS, SeenEvent
from gantline.cli.command import command
from gantline.cli.output import error_fields, instant_text
from gantline.cli.searching import internal_option
from gantline.cli.session import Cli, all_tenants_option
from gantline.cli.table import Columns
from gantline.contract.clock import as_utc
from gantline.contract.webhook import RESERVED_TYPES

_COLUMNS: Final = Columns(("time", "event", "jobId", "jobType", "why"), prose="why")
_OF_ALL_TENANTS: Final = _COLUMNS._replace(
    names=(*_COLUMNS.names[:3], "tenantId", "jobType", "why")
)


@click.command()
@click.option("--follow", is_flag=True, help="Go on until interrupted.")
@click.option("--type", "job_types", multiple=True, help="Only of these job types; else of all.")
@click.option(
    "--last",
    type=click.IntRange(0, 10_000),
    default=50,
    show_default=True,
    help=f"How many to show first, of those among the store's newest {MOST_EVENTS}.",
)
@internal_option
@all_tenants_option
@command
async def events(
    cli: Cli, /, follow: bool, job_types: tuple[str, ...], last: int, internal: bool
) -> None:
    """Show what happened to jobs, oldest first; with --follow, what happens from then on.

    A server shows events only from now on: --follow.
    """
    chosen, columns = frozenset(job_types), _OF_ALL_TENANTS if cli.all_tenants else _COLUMNS
    shown: list[dict[str, Any]] = []

    def is_chosen(job_type: str) -> bool:
        if chosen:
            return job_type in chosen
        return internal or not job_type.startswith(RESERVED_TYPES)

    async with cli.backend() as backend:
        async for event in backend.events(last, follow=follow, is_chosen=is_chosen):
            if follow:
                cli.output.line(_row(event, cli.clock.now()), columns)
            else:
                shown.append(_row(event, cli.clock.now()))
        empty = f"There are no such events of {backend.whose} among the newest {MOST_EVENTS}."
    if not follow:
        cli.output.rows(shown, columns, empty=empty)


def _row(event: SeenEvent, now: datetime) -> dict[str, Any]:
    is_today = as_utc(event.at).date() == now.date()
    return {
        "time": f"{as_utc(event.at):{'%H:%M:%S' if is_today else '%Y-%m-%d %H:%M:%S'}}",
        "at": instant_text(event.at),
        "event": event.event,
        "jobId": str(event.job_id),
        "jobType": event.job_type,
        "tenantId": event.tenant_id,
        "status": event.status.value,
        "reason": event.reason,
        "attempt": event.attempt,
        **error_fields(event.error_code, event.error_message, None),
        **({"why": event.reason} if event.is_domain_event else {}),
    }
