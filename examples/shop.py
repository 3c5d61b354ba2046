"""A small application on an embedded SQLite file: jobs of several kinds, live in the terminal.

`make run` runs it. The handlers are what a shop might have; each shows one thing that can happen.
"""

import asyncio
import logging
import random
import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from windlass import (
    Backoff,
    Context,
    Fixed,
    Handle,
    JobStatus,
    Permanent,
    Windlass,
    WorkerSettings,
)
from windlass.contract.snapshot import JobSnapshot

FOLDER = Path(".demo")
STORE = f"sqlite:///{FOLDER}/windlass.db"
BAR_WIDTH = 16
STYLES = {
    "Completed": "green",
    "Failed": "red",
    "Poisoned": "bold red",
    "Cancelled": "yellow",
    "Running": "cyan",
    "Retrying": "magenta",
    "Cancelling": "yellow",
}

jobs = Windlass(STORE)


class Order(msgspec.Struct):
    order_id: str


@jobs.job("send-receipt", subject="{order_id}", idempotency_key="receipt-{order_id}")
async def send_receipt(order: Order) -> str:
    """Quick, and never sent twice for one order."""
    return f"receipt for {order.order_id} sent"


@jobs.job("render-catalogue", timeout=timedelta(minutes=1))
async def render_catalogue(pages: int, ctx: Context) -> dict[str, int]:
    """Slow, and tells how far it is."""
    for page in range(pages):
        await ctx.progress(100 * page / pages, f"page {page + 1} of {pages}")
        await asyncio.sleep(0.12)
    return {"pages": pages}


@jobs.job("charge-card", subject="{order_id}", retry=Backoff(base=1.4, attempts=4))
async def charge_card(order: Order, ctx: Context) -> str:
    """The bank is away at first; backoff brings it home."""
    if ctx.attempt < 3:
        raise ConnectionError("the bank closed the connection")
    return "charged"


@jobs.job("sync-warehouse", retry=Fixed(every=timedelta(seconds=0.4), attempts=3))
def sync_warehouse(shelf: str) -> None:
    """Never works, in a thread: after its attempts it is poisoned, a dead letter."""
    raise TimeoutError(f"shelf {shelf} does not answer")


@jobs.job("ship", subject="{order_id}")
async def ship(order: Order) -> None:
    """Wrong for good: no attempt is wasted on it."""
    raise Permanent("ADDRESS_UNKNOWN", "The address does not exist.")


@jobs.job("recommend")
async def recommend(customer: int) -> None:
    """Would run for ever; somebody cancels it."""
    await asyncio.Event().wait()


async def main() -> None:
    console = Console()
    console.print("Six kinds of jobs on a SQLite file, and a worker beside them.\n")
    async with jobs, jobs.working(WorkerSettings(drain=timedelta(seconds=1))) as worker:
        handles: list[Handle[object]] = [
            await send_receipt.submit(Order("o-1")),
            await render_catalogue.submit(20),
            await charge_card.submit(Order("o-2")),
            await sync_warehouse.submit(f"A{random.randint(1, 9)}"),
            await ship.submit(Order("o-3")),
            await recommend.submit(7),
        ]
        running = asyncio.create_task(worker.run())
        await watch(console, handles)
        worker.stop()
        await running
    say_what_next(console, handles)


async def watch(console: Console, handles: Sequence[Handle[object]]) -> None:
    """Show the jobs until all have ended; cancel the last of them on the way."""
    loop = asyncio.get_running_loop()
    cancel_at: float | None = loop.time() + 1.5
    with Live(console=console, refresh_per_second=12, transient=False) as live:
        while True:
            seen = [await handle.status() for handle in handles]
            live.update(table_of(seen))
            if cancel_at is not None and loop.time() > cancel_at:
                await handles[-1].cancel(actor="you")
                cancel_at = None
            if all(job.status.is_terminal for job in seen):
                return
            await asyncio.sleep(0.08)


def table_of(seen: Sequence[JobSnapshot]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("job", "state", "attempt", "progress", "what happened"):
        table.add_column(column)
    for job in seen:
        derived = job.derived(jobs.clock.now())
        state = derived.value if derived else job.status.value
        style = STYLES.get(state, "white")
        attempt = f"{job.shown_attempt}/{job.job.max_attempts}"
        table.add_row(
            job.job.job_type, f"[{style}]{state}[/]", attempt, progress_of(job), outcome_of(job)
        )
    return table


def progress_of(job: JobSnapshot) -> str:
    if job.run is None or not job.run.percent:
        return ""
    done = round(BAR_WIDTH * job.run.percent / 100)
    return "━" * done + "╌" * (BAR_WIDTH - done)


def outcome_of(job: JobSnapshot) -> str:
    if job.run is not None and job.run.phase:
        return job.run.phase
    if job.last is None:
        return ""
    if job.last.error is not None:
        return f"{job.last.error.code}: {job.last.error.message}"
    if job.last.result is not None:
        return job.last.result.decode()
    return "cancelled by you" if job.status is JobStatus.CANCELLED else ""


def say_what_next(console: Console, handles: Sequence[Handle[object]]) -> None:
    command = Path(sys.executable).with_name("windlass")
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    windlass = f"{shown} --store {STORE}"
    console.print("\nThe file is still there. Try:", highlight=False)
    for line in (
        f"{windlass} job list",
        f"{windlass} dead list",
        f"{windlass} job get {handles[3].job_id}",
        f"{windlass} dead redrive --all --yes",
        f"{windlass} worker examples.shop:jobs",
    ):
        console.print(f"  {line}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    # The table tells what happens; the worker's own lines would run through it.
    logging.getLogger("windlass").setLevel(logging.CRITICAL)
    asyncio.run(main())
