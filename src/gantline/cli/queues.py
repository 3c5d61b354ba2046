"""gantline queue: looking at queues, pausing, resuming and capping them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import click
import msgspec
from msgspec import UNSET, UnsetType

from gantline.api.documents import JobCounts, QueueState
from gantline.api.tallies import COUNTED
from gantline.cli.backend import Backend
from gantline.cli.command import command
from gantline.cli.options import check_name
from gantline.cli.session import Cli, all_tenants_option
from gantline.cli.table import Columns
from gantline.cli.talk import say

# What is queued and scheduled would read as two jobs beside each other.
COUNT_COLUMNS: Final = ("due", *COUNTED[1:])
RARELY_ASKED: Final = ("cancelled", "completed", "scheduled")
# As the API has it.
_LARGEST_CAP: Final = 10**9
_CAPS: Final = ("maxDepth", "maxDepthPerTenant")
_COLUMNS: Final = Columns(
    ("queue", *COUNT_COLUMNS, "paused", *_CAPS), expendable=(_CAPS[1], *RARELY_ASKED)
)


def count_cells(counts: JobCounts) -> dict[str, int]:
    """How many jobs are where; `due` is for tables."""
    counted = {name: getattr(counts, name) for name in COUNTED}
    return counted | {"due": counts.queued - counts.scheduled}


def _max_depth(text: str) -> int | None:
    """Read a number of jobs, or `none`."""
    if text.lower() == "none":
        return None
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > _LARGEST_CAP:
        raise click.BadParameter(f"{text!r} is not a number of jobs; write 10000, or none.")
    return int(text)


@click.group()
def queue() -> None:
    """List, pause, resume and cap queues."""


@queue.command(name="list")
@all_tenants_option
@command
async def list_(cli: Cli) -> None:
    """List queues that hold the tenant's jobs. Pause and cap (maxDepth) apply to all tenants."""
    async with cli.backend() as backend:
        found, whose = await backend.queues(), backend.whose
    rows = [
        {
            "queue": one.queue,
            **count_cells(one),
            "paused": one.paused,
            "maxDepth": one.max_depth,
            "maxDepthPerTenant": one.max_depth_per_tenant,
        }
        for one in found.items
    ]
    empty = f"There are no jobs of {whose} in any queue, and none is paused or capped."
    cli.output.rows(rows, _COLUMNS, empty=empty)
    if found.omitted:
        say(f"There are {found.omitted} more queues; these are the fullest.")


@queue.command()
@click.argument("name")
@command
async def pause(cli: Cli, name: str) -> None:
    """Stop claiming from a queue; running jobs continue."""
    await _switch(cli, name, ("paused",), lambda backend: backend.pause_queue(name))


@queue.command()
@click.argument("name")
@command
async def resume(cli: Cli, name: str) -> None:
    """Start claiming from a queue again."""
    await _switch(cli, name, ("paused",), lambda backend: backend.resume_queue(name))


@queue.command()
@click.argument("name")
@click.argument("cap", metavar="N|none", type=_max_depth)
@click.option(
    "--per-tenant",
    metavar="N|none",
    callback=lambda ctx, option, text: UNSET if text is None else _max_depth(text),
    help="How many of each tenant may wait, beside N in all; else as it was.",
)
@command
async def cap(cli: Cli, name: str, cap: int | None, per_tenant: int | UnsetType | None) -> None:
    """Refuse new jobs while N jobs wait in a queue; `none` removes the cap."""
    await _switch(
        cli, name, _CAPS, lambda backend: backend.cap_queue(name, cap, per_tenant=per_tenant)
    )


async def _switch(
    cli: Cli, name: str, shown: Sequence[str], switch: Callable[[Backend], Awaitable[QueueState]]
) -> None:
    check_name("queue", name)
    async with cli.backend() as backend:
        state = msgspec.to_builtins(await switch(backend))
        known = await backend.known("queue")
    switched = {field: state[field] for field in shown}
    cli.output.one({"queue": name, **switched, "seen": name in known.seen})
    known.say_if_unseen("queue", name)
