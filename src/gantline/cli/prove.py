"""gantline prove: whether the promises hold on a store of one's own, under faults."""

import asyncio
import signal
import sys
import threading
from pathlib import Path
from typing import Final

import click

from gantline.cli.command import FAILED, command
from gantline.cli.output import Output
from gantline.cli.session import Cli, warn_of
from gantline.cli.store_choice import store_label
from gantline.cli.talk import LastLine, say
from gantline.contract.errors import InvalidInput
from gantline.proving.proof import Progress, Proof, ProofSettings, prove
from gantline.proving.report import PROVEN
from gantline.runtime import random_bytes

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


@click.command(name="prove")
@click.option(
    "--minutes",
    type=click.FloatRange(0.05, 1440),
    default=1.0,
    show_default=True,
    help="For how long faults are made.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 32),
    default=4,
    show_default=True,
    help="Number of worker processes.",
)
@click.option("--seed", type=click.IntRange(0), help="Draw the same jobs and faults once more.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="Keep histories, logs and faults in this folder.",
)
@command
async def prove_(
    cli: Cli, minutes: float, workers: int, seed: int | None, as_json: bool, keep: Path | None
) -> None:
    """Prove on an empty store of your own that no job is lost or ends twice.

    Starts workers and clients, kills and freezes them, cuts their connections and loses answers
    for the time given, and judges all that was asked and answered. The store must hold nothing.
    """
    choice = cli.choice
    if not isinstance(choice.source, str):
        raise InvalidInput(
            "The application's store is an object, which other processes cannot open.",
            next_step="Name a store by --store.",
        )
    store = choice.make(cli.clock)
    warn_of(choice, store)
    label = store_label(store, choice)
    settings = ProofSettings(
        seconds=60 * minutes,
        seed=int.from_bytes(random_bytes(4), "big") if seed is None else seed,
        workers=workers,
        keep=keep,
    )
    say(f"Proving {label} for {minutes:g} min with seed {settings.seed}; Ctrl-C ends it early.")
    line = LastLine()
    try:
        report, left = await prove(
            store,
            choice.source,
            settings,
            label=label,
            notify=lambda progress: line.write(_text(progress)),
            begun=_stop_by_signals,
        )
    finally:
        line.end()
    output = Output("json") if as_json else cli.output
    output.text_or_one(str(report), report.data)
    say(left)
    if report.verdict != PROVEN:
        sys.exit(FAILED)


def _stop_by_signals(proof: Proof) -> None:
    """Ctrl-C ends the faults early; a second one leaves without a report."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in _STOPPING:
            loop.remove_signal_handler(number)
        say("Ending early: no more faults; waiting for all jobs to end.")
        proof.stop()

    if threading.current_thread() is threading.main_thread():  # only it may ask for signals
        for number in _STOPPING:
            loop.add_signal_handler(number, stop)


def _text(progress: Progress) -> str:
    of = f" of {progress.of:.0f} s" if progress.of else " s"
    return (
        f"{progress.doing}: {progress.elapsed:.0f}{of}, {progress.jobs} jobs, "
        f"{progress.ended} ended, {progress.faults} faults"
    )
