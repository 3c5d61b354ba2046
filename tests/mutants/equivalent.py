"""Generated mutants that no test can notice, each with the reason."""

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {}
