"""Ctrl-C ends a command whenever it comes."""

import asyncio
import os
import signal

import pytest

from gantline.cli.command import run_interruptible


def test_a_signal_wakes_a_loop_that_is_about_to_sleep() -> None:
    """Without a descriptor to write to, a signal just before the sleep is heard only after it."""

    async def descriptor() -> int:
        return signal.set_wakeup_fd(-1)

    assert run_interruptible(descriptor()) != -1


def test_an_interrupted_command_cleans_up_and_is_interrupted() -> None:
    done: list[str] = []

    async def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(command())
    assert done == ["cleaned up"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interruption_does_not_wait_for_the_cleaning() -> None:
    async def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(command())


def test_a_command_that_cancels_itself_was_not_interrupted() -> None:
    async def command() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_interruptible(command())
