"""How long fuzzing takes: the same few inputs in `make test`, new ones for minutes in `make fuzz`.

GANTLINE_FUZZ_MINUTES is for all tests that were chosen together; each prints the seeds that it
uses, and GANTLINE_FUZZ_SEED runs one of them again.
"""

import os
from typing import Final

import hypothesis

MINUTES: Final = float(os.environ.get("GANTLINE_FUZZ_MINUTES", "0"))
SEED: Final = int(os.environ.get("GANTLINE_FUZZ_SEED", "0"))
IS_LONG: Final = bool(MINUTES or SEED)

_ROUND: Final = 10
"""How many times more inputs one seed gives than a test of `make test` has."""


def effort(examples: int) -> hypothesis.settings:
    """The settings of a test that has so many inputs in `make test`."""
    return hypothesis.settings(
        max_examples=examples * _ROUND if IS_LONG else examples,
        derandomize=not IS_LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
