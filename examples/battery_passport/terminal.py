"""The terminal: a line for each step that a job takes, and the code itself where there is room."""

import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from examples.battery_passport.qr import QUIET_ZONE, qr_code
from gantline import JobEvent, JobStatus

_SHOWN: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "PARSE_FACTS": lambda said: f"{said['kind']}: {said['facts']} facts of {said['serial']}",
    "BUILD_SNAPSHOT": lambda said: (
        f"waits for {', '.join(said['missing'])}" if said["missing"] else "sealed"
    ),
    "COMPILE_PASSPORT": lambda said: f"version {said['passport_version_id']}",
    "SIGN_PASSPORT": lambda said: f"Ed25519, key {said['key_id']}",
    "GENERATE_QR": lambda said: f"PNG, level M: {said['qr'][:24]}…",
    "EXPORT_PASSPORT": lambda said: ", ".join(said["artefacts"]),
    "RUN_RULE_TESTS": lambda said: (
        f"{said['cases']} rule tests passed: {said['package']} is published"
    ),
}


class Terminal:
    """Prints; on a real terminal in colour, with the code drawn in blocks."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)

    def say(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(text, style))

    def show(self, event: JobEvent) -> None:
        """One event of a job that has to do with documents, rules and passports."""
        shown = _SHOWN.get(event.job.job_type)
        if shown is None:
            return
        is_done = event.entry.status is JobStatus.COMPLETED
        line = Text.assemble(
            ("  ✓ " if is_done else "  ✗ ", "green" if is_done else "red"),
            (f"{event.job.job_type:<18}", "bold"),
            (f"{event.job.tenant_id:<10}", "dim"),
            _outcome(event, shown),
        )
        self._console.print(line)

    def draw(self, text: str) -> None:
        """The QR code, for a camera in front of the screen."""
        if self._console.is_terminal and self._console.height > 40:
            qr_code(text).terminal(out=sys.stdout, border=QUIET_ZONE, compact=True)


def _outcome(event: JobEvent, shown: Callable[[dict[str, Any]], str]) -> str:
    if event.entry.error is not None:
        return f"{event.entry.error.code}: {event.entry.error.message}"
    return shown(msgspec.json.decode(event.entry.result)) if event.entry.result else ""
