"""gantline limit: how many jobs may run at once and start in a time; gates and groups."""

from typing import Any, Final

import click
import msgspec
from msgspec import UNSET

from gantline.api.limit_documents import LARGEST, LimitDocument, TypeLimits
from gantline.cli.backend import Backend
from gantline.cli.command import command
from gantline.cli.options import check_name
from gantline.cli.output import instant_text
from gantline.cli.session import Cli, all_tenants_option
from gantline.cli.table import Columns
from gantline.contract.errors import InvalidInput
from gantline.flow.limit import read_rate

_KINDS: Final = ("running", "runningInAll", "rate", "burst", "gate")
_COLUMNS: Final = Columns(("jobType", *_KINDS, "set"), expendable=("set", "burst"))
_DECLARED: Final = Columns(("firstSeenAt", *_KINDS))
_GROUPS: Final = Columns(("group", "waiting", "running", "oldestDueAt", "queue", "tenantId"))
_GATES: Final = Columns(("gate", "rate", "burst", "closed", "opensAt", "throttled", "jobTypes"))
_NONE: Final = "none"


@click.group()
def limit() -> None:
    """Show and set limits of job types; show gates, and groups that wait."""


@limit.command(name="list")
@command
async def list_(cli: Cli) -> None:
    """List the limits of types, which hold for all tenants: runs at once, and rates."""
    async with cli.backend() as backend:
        found = await backend.limits()
    cli.output.rows([_row(one) for one in found], _COLUMNS, empty="No type has limits.")


@limit.command()
@click.argument("job_type")
@command
async def show(cli: Cli, job_type: str) -> None:
    """Show which limits of a type hold, who has set them, and what its code declares."""
    check_name("type", job_type)
    async with cli.backend() as backend:
        _show(cli, await backend.limits_of(job_type))


def _count(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Read a number, or `none`."""
    if text is None:
        return UNSET
    if text.lower() == _NONE:
        return None
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:20]) <= LARGEST:
        raise click.BadParameter(f"{text!r} is not a number of jobs; write 10, or none.")
    return int(text)


def _rate(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Read a rate, or `none`."""
    if text is None:
        return UNSET
    if text.lower() == _NONE:
        return None
    try:
        read_rate(text)
    except InvalidInput as error:
        raise click.BadParameter(str(error)) from None
    return text


@limit.command(name="set")
@click.argument("job_type")
@click.option("--running", metavar="N|none", callback=_count, help="At once, of each group.")
@click.option("--running-in-all", metavar="N|none", callback=_count, help="At once, of the type.")
@click.option(
    "--rate", metavar="N/s|none", callback=_rate, help="Starts: 100/s, 10/m, 500/h, 50/d."
)
@click.option(
    "--burst",
    type=click.IntRange(1, LARGEST),
    help="How many may start at once after a quiet time.",
)
@click.option("--gate", help="Name of the rate, to share it with other types.")
@command
async def set_(
    cli: Cli, /, job_type: str, burst: int | None, gate: str | None, **asked: Any
) -> None:
    """Set limits over those that code declares, for all tenants; what is left out stays.

    Workers hold to them within seconds.
    """
    check_name("type", job_type)
    asked |= {} if burst is None else {"burst": burst}
    asked |= {} if gate is None else {"gate": gate}
    async with cli.backend() as backend:
        _show(cli, await backend.set_limits(job_type, **asked))
        await _say_if_unseen(backend, job_type)


@limit.command()
@click.argument("job_type")
@click.option(
    "--declared", is_flag=True, help="Forget what code declares too, until its next worker starts."
)
@command
async def clear(cli: Cli, job_type: str, declared: bool) -> None:
    """Let the limits that code declares hold again."""
    check_name("type", job_type)
    async with cli.backend() as backend:
        _show(cli, await backend.clear_limits(job_type, declared=declared))


@limit.command()
@click.argument("job_type")
@click.option("--queue", help="Only those in this queue.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@all_tenants_option
@command
async def groups(cli: Cli, job_type: str, queue: str | None, limit: int) -> None:
    """List the groups of which jobs of a type wait or run."""
    check_name("type", job_type)
    rows: list[dict[str, Any]] = []
    async with cli.backend() as backend:
        queues = [queue] if queue else await _queues_of(backend, job_type)
        for name in queues:
            async for one in backend.groups(job_type, queue=name):
                row = msgspec.to_builtins(one) | {"oldestDueAt": instant_text(one.oldest_due_at)}
                rows.append(row)
                if len(rows) >= limit:
                    break
        empty = f"No job of the type waits or runs, of {backend.whose}."
    cli.output.rows(rows[:limit], _GROUPS, empty=empty)


@limit.command()
@command
async def gates(cli: Cli) -> None:
    """List the gates of all rates, and which of them are closed."""
    async with cli.backend() as backend:
        found = await backend.gates()
    rows = [msgspec.to_builtins(one) | {"opensAt": instant_text(one.opens_at)} for one in found]
    cli.output.rows(rows, _GATES, empty="No type has a rate.")


async def _queues_of(backend: Backend, job_type: str) -> list[str]:
    return sorted({one.queue for one in await backend.lanes() if one.job_type == job_type})


async def _say_if_unseen(backend: Backend, job_type: str) -> None:
    (await backend.known("type")).say_if_unseen("type", job_type)


def _row(document: LimitDocument) -> dict[str, Any]:
    who = f" by {document.set_by}" if document.set_by else ""
    return {
        "jobType": document.job_type,
        **_limits(document),
        "set": ", ".join(document.set) + who if document.set else None,
    }


def _show(cli: Cli, document: LimitDocument) -> None:
    row = _row(document) | {"setAt": instant_text(document.set_at)}
    declared = [
        {"firstSeenAt": instant_text(one.first_seen_at), **_limits(one)}
        for one in document.declared
    ]
    cli.output.one_with(row, "declared", declared, _DECLARED)


def _limits(limits: TypeLimits) -> dict[str, Any]:
    built = msgspec.to_builtins(limits)
    return {name: built[name] for name in _KINDS}
