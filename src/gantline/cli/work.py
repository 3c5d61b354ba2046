"""gantline worker and dev: processes that run jobs."""

import asyncio
import atexit
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final

import click
import msgspec

from gantline.app import Gantline
from gantline.auth.worker_key import WorkerKey
from gantline.cli.command import exiting
from gantline.cli.health import HealthPort, health_port, path_options, supervise, watched
from gantline.cli.options import (
    MOST_PROCESSES,
    Recycle,
    Seconds,
    named_for_workers,
    parse_queues,
    parse_recycle,
)
from gantline.cli.process import run_tuned
from gantline.cli.serve import open_api
from gantline.cli.session import Cli, pass_cli, warn_of
from gantline.cli.store_choice import StoreChoice, store_label
from gantline.cli.supervision.children import PARENT_PIPE, stop_with_parent
from gantline.cli.supervision.reloader import Reloader
from gantline.cli.talk import Say, counted, log_as, notice_when_slow
from gantline.contract.errors import InvalidInput
from gantline.runtime import start_thread
from gantline.telemetry.health import require_broker
from gantline.webhooks.endpoints import ENDPOINTS
from gantline.worker.settings import WorkerSettings
from gantline.worker.worker import Worker

# What people type who look for workers.
_NO_MODULES: Final = frozenset({"list", "ls", "status", "show", "start", "stop"})
_DRAIN_OF_DEV: Final = timedelta(seconds=1)
_THREADS_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 3.0
# When a process that was asked to stop is ended by force: so long after its drain.
_BY_FORCE_SECONDS: Final = 10.0
# After a second signal: for runs to be given back, then for the last lines of the log.
_AT_ONCE_SECONDS: Final = 1.0
_LAST_LINES_SECONDS: Final = 0.5
_EXIT_AT_ONCE: Final = 130


@click.command()
@click.argument("target", required=False, metavar="[MODULE:APP]")
@click.option(
    "-q", "--queue", "queues", help="Queues to serve, with slots: documents:10,default:5."
)
@click.option(
    "--processes", type=click.IntRange(1, MOST_PROCESSES), help="Number of worker processes."
)
@click.option(
    "--drain",
    "drain_seconds",
    type=Seconds(86_400),
    help="How long running jobs may continue after a stop: 30s, 5m.",
)
@click.option("--recycle", default="", help="Restart a process after 10000jobs or at 512MB.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Plain lines, or one JSON object per line.",
)
@click.option("--health", help="Serve health and metrics at this address: :8081.")
@path_options
@click.option(PARENT_PIPE, type=int, hidden=True, help="Started by a supervisor, which holds it.")
@pass_cli
def worker(
    cli: Cli,
    target: str | None,
    queues: str | None,
    processes: int | None,
    drain_seconds: float | None,
    recycle: str,
    log_level: str,
    log_format: str | None,
    health: str | None,
    live_path: str | None,
    ready_path: str | None,
    parent_pipe: int | None,
) -> None:
    """Run jobs of the application MODULE:APP until stopped."""

    def run() -> int:
        if target in _NO_MODULES:
            raise InvalidInput(
                f"`gantline worker` runs jobs, and {target!r} is no application.",
                next_step="`gantline sessions` lists workers; `gantline worker module:app` is one.",
            )
        report = log_as(cli.settings, log_format, log_level.upper())
        asked = None if drain_seconds is None else timedelta(seconds=drain_seconds)
        # As far as it is known before the application is.
        named = timedelta(seconds=cli.settings.number("drain_seconds"))
        drain = named if asked is None else asked
        if parent_pipe is not None:
            stop_with_parent(parent_pipe, lambda: drain)
        port = health_port(cli, health, live_path, ready_path)
        count = processes or cli.settings.whole("processes", least=1, most=MOST_PROCESSES)
        app, choice = cli.app_to_run(target)
        if _requires_broker(cli):
            require_broker(app.broker)
        _refuse_without_work(app)
        limits = parse_recycle(recycle) if recycle else Recycle.of(app.worker)
        settings = _settings(cli, app, queues, asked, limits)
        drain = settings.drain
        if parent_pipe is None and (count > 1 or limits != Recycle()):
            asyncio.run(_try_the_store(app, choice, report))  # fail here, and not in every child
            return supervise(count, _child_command(), port, drain=drain, say=report)
        announced = choice if parent_pipe is None else None
        return run_tuned(_work(cli, app, settings, port, report, announced))

    sys.exit(exiting(run))


def _settings(
    cli: Cli,
    app: Gantline,
    queues: str | None,
    drain: timedelta | None,
    recycle: Recycle,
) -> WorkerSettings:
    """A flag before variables and files, before what the application says of its workers."""
    named, text = named_for_workers(cli.settings, app.worker), queues or cli.settings["queues"]
    if drain is not None:
        named["drain"] = drain
    return msgspec.structs.replace(
        app.worker,
        queues=parse_queues(text) if text else app.worker.queues or app.default_queues(),
        recycle_after_jobs=recycle.jobs,
        recycle_above_bytes=recycle.memory_bytes,
        **named,
    )


def _requires_broker(cli: Cli) -> bool:
    return cli.settings.choice("require_broker", "yes", "no") == "yes"


def _child_command() -> list[str]:
    """The very command that was given, once more."""
    return [sys.executable, "-m", "gantline.cli.main", *sys.argv[1:]]


async def _try_the_store(app: Gantline, choice: StoreChoice, report: Say) -> None:
    await _open(app, choice, report)
    await app.close()


async def _open(app: Gantline, choice: StoreChoice, report: Say) -> None:
    """Open the store, and say which it is: jobs that are submitted elsewhere are never seen."""
    warn_of(choice, app.store, report=report)
    label = store_label(app.store, choice)
    with notice_when_slow(label, app.store.capabilities.patience, report=report):
        await app.open()
        await app.store.ping()
        await WorkerKey(app.store, clock=app.clock).check()
        has_webhooks = bool(await app.store.read_records(ENDPOINTS, limit=1))
    await app.switches.refresh()
    if app.switches.closed is not None and app.switches.closed.has_moved:
        raise app.switches.refusal  # no job of this store will ever run
    report(f"Jobs are kept in {label} ({choice.why}).")
    if has_webhooks and app.webhooks is None:
        report("Warning: GANTLINE_WEBHOOK_KEY is not set, so this worker delivers no webhooks.")


async def _work(
    cli: Cli,
    app: Gantline,
    settings: WorkerSettings,
    port: HealthPort | None,
    report: Say,
    announced: StoreChoice | None,
    beside: AbstractAsyncContextManager[None] | None = None,
) -> int:
    if announced is not None:
        await _open(app, announced, report)
    with watched(app, port, requires_broker=_requires_broker(cli), say=report):
        async with _opened(app), beside or nullcontext(), app.working(settings) as running:
            signals = _StopSignals(running, settings.drain, report)
            served = ", ".join(f"{queue} ({slots})" for queue, slots in settings.queues.items())
            report(f"Working on {served}. Press Ctrl-C to stop.")
            await running.run()
    _limit_the_wait_for_threads()
    report("Stopped.")
    if signals.count > 1:
        return _EXIT_AT_ONCE
    return 1 if running.has_stuck_handlers else 0


def _refuse_without_work(app: Gantline) -> None:
    """Raise InvalidInput where there is nothing that a worker could ever do."""
    if not app.registry.handlers and not app.consumers:
        raise InvalidInput(
            "The application declares no job, so that a worker has nothing to do.",
            next_step="Declare one with @jobs.job, or include its group: Gantline(include=[…]).",
        )


@asynccontextmanager
async def _opened(app: Gantline) -> AsyncIterator[None]:
    """Open the application, and close it in seconds: a store that is away would take longer."""
    await app.open()
    try:
        yield
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await app.close()


def _limit_the_wait_for_threads() -> None:
    """End the process with stacks and 1 if a thread still runs after a while.

    Python waits without end for threads that a handler has started, as by `asyncio.to_thread`.
    """
    faulthandler.dump_traceback_later(_THREADS_SECONDS, exit=True)
    atexit.register(faulthandler.cancel_dump_traceback_later)  # called after that wait


class _StopSignals:
    """First signal: drain. Second: stop at once. What does not stop is ended by force."""

    def __init__(self, running: Worker, drain: timedelta, report: Say) -> None:
        self._running = running
        self._drain = drain.total_seconds()
        self._report = report
        self._is_stopping = False
        self.count = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
            # Beside the loop, which does not hear a signal while a handler blocks it.
            signal.signal(number, self._limit)

    def _stop(self) -> None:
        if self._is_stopping:
            self._running.stop_now()
            return
        self._is_stopping = True
        busy = sum(total - free for total, free in self._running.slots.values())
        waits = f"waiting up to {self._drain:g} s for {counted(busy, 'running job')}"
        self._report(
            f"Stopping: {waits}; press Ctrl-C again to stop at once."
            if busy
            else "Stopping: no job is running."
        )
        self._running.stop()

    def _limit(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            faulthandler.dump_traceback_later(self._drain + _BY_FORCE_SECONDS, exit=True)
        elif self.count == 2:
            # Where not even a thread can run, since code in C keeps the interpreter to itself.
            faulthandler.dump_traceback_later(_BY_FORCE_SECONDS, exit=True)
            start_thread(_end_by_force, "gantline-end")


def _end_by_force() -> None:
    """In a thread: end the process whatever the others do, once runs had a moment to be given back.

    Those that were not are taken over like those of a worker that has crashed.
    """
    threading.Event().wait(_AT_ONCE_SECONDS)
    start_thread(logging.shutdown, "gantline-last-lines").join(_LAST_LINES_SECONDS)
    os._exit(_EXIT_AT_ONCE)


@click.command()
@click.argument("target", required=False, metavar="[MODULE:APP]")
@click.option("--reload/--no-reload", default=True, help="Restart when a .py file changes.")
@click.option(
    "--api/--no-api", "with_api", default=True, help="Serve the API too, to this host only."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; local ones only."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Port to listen on; default: 8080, or the next free one.",
)
@click.option(PARENT_PIPE, type=int, hidden=True, help="Started by the reloader, which holds it.")
@pass_cli
def dev(
    cli: Cli,
    target: str | None,
    reload: bool,
    with_api: bool,
    host: str,
    port: int | None,
    parent_pipe: int | None,
) -> None:
    """Run a worker and the API for development; they restart when the code changes."""

    def run() -> int:
        report = log_as(cli.settings, None, "INFO", text="%(levelname)s %(message)s")
        if parent_pipe is not None:
            stop_with_parent(parent_pipe, lambda: _DRAIN_OF_DEV)
        elif reload:
            cli.app_name(target)  # what is not named, no change of the code will name
            return Reloader(Path.cwd(), _child_command(), drain=_DRAIN_OF_DEV).run()
        app, choice = cli.app_to_run(target)
        settings = _settings(cli, app, None, _DRAIN_OF_DEV, Recycle())
        tenant = cli.tenant_of(app)
        beside = _open_api(app, tenant, host, port, report) if with_api else nullcontext()
        served = health_port(cli, None)
        return run_tuned(_work(cli, app, settings, served, report, choice, beside))

    sys.exit(exiting(run))


@asynccontextmanager
async def _open_api(
    app: Gantline, tenant: str, host: str, port: int | None, report: Say
) -> AsyncIterator[None]:
    async with open_api(app, tenant=tenant, host=host, port=port) as url:
        report(f"The API is at {url}/api, open to this host; begin at {url}/.")
        yield
