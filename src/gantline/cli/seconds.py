"""The type of every option that is a span of seconds."""

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """A finite number of seconds from 0 on. A plain FloatRange lets nan through."""

    name = "seconds"

    def __init__(self, most: float | None = None) -> None:
        super().__init__(0, most)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds
