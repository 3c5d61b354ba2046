"""Which jobs a command lists: its options are those of `jobs.find`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gantline.cli.options import instant_or_span
from gantline.cli.session import all_tenants_option

F = TypeVar("F", bound=Callable[..., Any])

internal_option = click.option(
    "--internal", is_flag=True, help="Gantline's own jobs, deliveries of webhooks, too."
)


def search_options(function: F) -> F:
    """Add the options; what they say is FindOptions."""
    for option in (
        all_tenants_option,
        internal_option,
        click.option(
            "--attempts", "min_attempts", type=click.IntRange(1, 1000), help="At least so many."
        ),
        click.option("--until", type=instant_or_span, help="Submitted before; as --since."),
        click.option(
            "--since", type=instant_or_span, help="Submitted since: 2h, 30d or 2026-11-01T12:00."
        ),
        click.option("--correlation", "correlation_id", help="The correlation id."),
        click.option("--owner", help="Who submitted it, such as key:<id>."),
        click.option("--subject"),
        click.option("--code", "error_code", multiple=True, help="Of the last error."),
        click.option("--queue", multiple=True),
        click.option("--type", "job_type", multiple=True),
    ):
        function = option(function)
    return function
