"""How a process that serves talks: to people on stderr, or all in its log where that is JSON."""

import logging
from collections.abc import Callable

from gantline.cli.output import say
from gantline.cli.session import Cli
from gantline.telemetry.logs import TEXT, configure_logs

Say = Callable[[str], None]


def log_as(cli: Cli, log_format: str | None, level: str, *, text: str = TEXT) -> Say:
    """Set the log up; return how to talk to people, which in JSON is the log as well."""
    chosen = log_format or cli.settings.choice("log_format", "text", "json")
    configure_logs(chosen, level, text=text)
    return logging.getLogger("gantline.cli").info if chosen == "json" else say
