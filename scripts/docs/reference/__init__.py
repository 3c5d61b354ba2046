"""The reference: pages that are made of what the code itself declares, at every build."""

from collections.abc import Callable, Mapping
from typing import Final

from scripts.docs.reference import (
    command_line,
    errors,
    events,
    http,
    metrics,
    python,
    settings,
    statuses,
    stores,
)

REFERENCE: Final[Mapping[str, Callable[[], str]]] = {
    "http": http.page,
    "command-line": command_line.page,
    "python": python.page,
    "settings": settings.page,
    "statuses": statuses.page,
    "errors": errors.page,
    "events": events.page,
    "metrics": metrics.page,
    "stores": stores.page,
}
