"""gantline: the command itself, with the options that every command has."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from gantline.app.settings import Settings
from gantline.cli.audit import audit
from gantline.cli.bridge import bridge
from gantline.cli.command import exiting
from gantline.cli.consumers import consumer
from gantline.cli.db import db
from gantline.cli.dead import dead
from gantline.cli.doctor import doctor
from gantline.cli.events import events
from gantline.cli.job_types import type_
from gantline.cli.jobs import job
from gantline.cli.keys import key
from gantline.cli.limits import limit
from gantline.cli.operate import config, sessions, stats
from gantline.cli.output import Output
from gantline.cli.prove import prove_
from gantline.cli.queues import queue
from gantline.cli.schedules import schedule
from gantline.cli.serve import api
from gantline.cli.session import Cli
from gantline.cli.store import store as store_group
from gantline.cli.talk import say, say_crash
from gantline.cli.webhooks import webhook
from gantline.cli.work import dev, worker
from gantline.contract.version import __version__

_SHARED: Final = frozenset({"--store", "--url", "--app", "--tenant", "-o", "--output"})


class EverywhereGroup(click.Group):
    """Takes the options that all commands share before or after the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _shared_first(args))

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _saying_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _saying_errors():
            return super().invoke(ctx)


@contextmanager
def _saying_errors() -> Iterator[None]:
    """Say what click has against the arguments as all else is said: it repeats them."""
    try:
        yield
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        say(text.getvalue(), nl=False)
        sys.exit(error.exit_code)


def _shared_first(args: list[str]) -> list[str]:
    shared: list[str] = []
    rest: list[str] = []
    waiting = list(args)
    while waiting:
        arg = waiting.pop(0)
        if arg == "--":
            return [*shared, *rest, arg, *waiting]
        if arg in _SHARED and waiting:
            shared += [arg, waiting.pop(0)]
        elif arg.partition("=")[0] in _SHARED and "=" in arg:
            shared.append(arg)
        else:
            rest.append(arg)
    return [*shared, *rest]


@click.group(cls=EverywhereGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="gantline")
@click.option("--store", help="URL of the store that keeps the jobs.")
@click.option("--url", help="URL of a server to use instead of a store; set GANTLINE_API_KEY.")
@click.option("--app", help="Your application object, as module:name.")
@click.option("--tenant", help="The tenant whose jobs to use.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "jsonl"]),
    default="table",
    show_default=True,
)
@click.pass_context
def main(context: click.Context, /, output: str, **flags: str | None) -> None:
    """Run and manage durable background jobs."""
    sys.excepthook = say_crash
    context.obj = exiting(lambda: Cli(Settings(flags, Path.cwd()), Output(output)))


for part in (
    *(api, audit, bridge, config, consumer, db, dead, dev, doctor, events, job, key, limit, prove_),
    *(queue, schedule, sessions, stats, store_group, type_, webhook, worker),
):
    main.add_command(part)


if __name__ == "__main__":
    main()
