"""What a process of the command sets up: its event loop, and its collector."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, Final, TypeVar

R = TypeVar("R")

_log = logging.getLogger("gantline.worker")

EXIT_LOOP_CLOSED: Final = 72

# Nearly all objects of a run die with it, without the collector's help. By default it looks after
# every 700 new ones, several times in each batch: 54 instead of 51 µs a no-op job.
_THRESHOLDS: Final = (50_000, 20, 100)


def run_tuned(main: Coroutine[Any, Any, R]) -> R:
    """Run the main coroutine of a process that does nothing else."""
    relax_collector()
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        loop = runner.get_loop()
        return run_through(loop, loop.create_task(main))


def run_through(loop: asyncio.AbstractEventLoop, main: "asyncio.Task[R]") -> R:
    """Run a task to its end, whatever a job does to the loop.

    A task that a handler has started and that raises SystemExit or KeyboardInterrupt ends the loop,
    and so does `loop.stop()`. No job may end the worker: the loop goes on where it was.
    """
    interrupted = False
    while True:
        try:
            return loop.run_until_complete(main)
        except BaseException as error:
            if main.done():
                if interrupted and isinstance(error, asyncio.CancelledError):
                    raise KeyboardInterrupt from None
                raise
            if loop.is_closed():
                _log.critical("a job has closed the event loop; ending this process")
                os._exit(EXIT_LOOP_CLOSED)
            if _is_interrupted(error):
                interrupted = True
                main.cancel()
            else:
                _log.error("a job tried to end the worker, which goes on: %r", error)


def _is_interrupted(error: BaseException) -> bool:
    """Whether it was Ctrl-C, which does not raise once a worker listens for that signal."""
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(error, KeyboardInterrupt) and handler is signal.default_int_handler


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Make uvloop's event loop where it is installed (8 % less CPU a job), else asyncio's own."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def relax_collector() -> None:
    """Look for cycles less often, and never again at what exists already (the application)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
