"""Asking a person before something is done that cannot be undone."""

import asyncio
import sys

import click

from gantline.cli.output import say
from gantline.cli.session import FAILED
from gantline.contract.errors import InvalidInput


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
    click.echo(f"{question} [y/N]: ", err=True, nl=False)
    loop.add_reader(sys.stdin.fileno(), line.set)
    try:
        await line.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline().strip().lower() in ("y", "yes")
