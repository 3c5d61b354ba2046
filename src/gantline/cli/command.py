"""How a command runs: Ctrl-C is always heard, a person is asked, errors are exit codes."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

from gantline.cli.session import Cli, pass_cli
from gantline.cli.talk import say
from gantline.contract.errors import (
    AuthMisconfigured,
    Forbidden,
    GantlineError,
    InvalidInput,
    JobNotFound,
    KeyNotFound,
    NotAuthenticated,
    NotThere,
    ServerError,
    ServerFailed,
    StoreError,
    StoreUnavailable,
    WebhookNotFound,
    WebhooksOff,
)

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
NO_RIGHT: Final = 4
UNREACHABLE: Final = 5
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130

P = ParamSpec("P")
R = TypeVar("R")


def command(function: Callable[Concatenate[Cli, P], Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Run an async command with the Cli; turn errors into one line on stderr and an exit code."""

    @pass_cli
    @wraps(function)
    def run(cli: Cli, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return exiting(lambda: run_interruptible(function(cli, *args, **kwargs)))

    return run


def exiting(call: Callable[[], R]) -> R:
    """Call, and leave with the right exit code when it fails."""
    try:
        return call()
    except GantlineError as error:
        say(f"Error: {error}{_where_to_look(error)}")
        sys.exit(exit_code(error))
    except TimeoutError:
        say("Error: the time is up.")
        sys.exit(TIMED_OUT)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)


def _where_to_look(error: GantlineError) -> str:
    """Where the key comes from; and of what is wrong with a server, more is in its log."""
    if isinstance(error, NotAuthenticated):
        return " The key is taken from GANTLINE_API_KEY."
    is_there = isinstance(error, ServerFailed | StoreUnavailable) and error.correlation_id
    return f" In the server's log it is {error.correlation_id}." if is_there else ""


def exit_code(error: GantlineError) -> int:
    match error:
        case JobNotFound() | KeyNotFound() | NotThere() | WebhookNotFound():
            return NOT_FOUND
        case InvalidInput() | AuthMisconfigured() | WebhooksOff():
            return USAGE
        case NotAuthenticated() | Forbidden():
            return NO_RIGHT
        case StoreError() | ServerError():
            return UNREACHABLE
        case _:
            return FAILED


def run_interruptible(main: Coroutine[Any, Any, R]) -> R:
    """Run a command's coroutine; a Ctrl-C cancels it, and a second one ends it at once.

    `asyncio.run` alone loses the Ctrl-C that comes just before the loop falls asleep: it gives
    signals no descriptor that would wake the loop, as a handler of the loop's own does.
    """
    interrupted = False

    async def cancelled_by_signal() -> R:
        task, loop = asyncio.create_task(main), asyncio.get_running_loop()

        def cancel() -> None:
            nonlocal interrupted
            interrupted = True
            loop.remove_signal_handler(signal.SIGINT)  # the second one raises where it arrives
            task.cancel()

        if threading.current_thread() is threading.main_thread():  # only it may ask for signals
            loop.add_signal_handler(signal.SIGINT, cancel)
        return await task

    try:
        return asyncio.run(cancelled_by_signal())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise


async def confirm(what: str) -> None:
    """Go on if a person says yes; without a terminal there is nobody to ask."""
    if not sys.stdin.isatty():
        raise InvalidInput(f"This would {what}.", next_step="Confirm with --yes.")
    if not await _says_yes(f"{what}?"):
        say("Nothing was done.")
        sys.exit(FAILED)


async def _says_yes(question: str) -> bool:
    """Wait for the answer in the loop: a Ctrl-C that comes just before `input` blocks is lost."""
    loop, line = asyncio.get_running_loop(), asyncio.Event()
    say(f"{question} [y/N]: ", nl=False)
    loop.add_reader(sys.stdin.fileno(), line.set)
    try:
        await line.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline().strip().lower() in ("y", "yes")
