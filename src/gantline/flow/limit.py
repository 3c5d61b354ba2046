"""Limit: what a declaration says of how many runs there may be; and a rate, as people write it."""

import math
import re
from collections.abc import Sequence
from typing import Final, Literal

from gantline.contract.bounds import CheckedStruct, Count, Name, held_as
from gantline.contract.errors import InvalidInput
from gantline.contract.flow import Gate, TypeFlow

_RATE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)/([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_FASTEST: Final = 1_000_000
_YEAR_SECONDS: Final = 365 * 86_400
_HOW: Final = 'Write how many in a second, minute, hour or day: "100/s", "10/m", "500/h", "50/d".'


class Limit(CheckedStruct, frozen=True, kw_only=True):
    """One limit of a type of job, over all workers: so many runs at once, or so many starts.

    `Limit(running=2)` counts the runs of each group, `Limit(running=40, per="type")` all of the
    type. `Limit(rate="100/s", gate="mail-api")` counts the starts of all types that name that gate.
    """

    running: Count | None = None
    per: Literal["group", "type"] | None = None
    """Of what `running` counts the runs; left out: of each group."""
    rate: str | None = None
    """How many may start in a second, minute, hour or day: "100/s", "10/m", "500/h", "50/d"."""
    burst: Count | None = None
    """How many may start at once after a quiet time; left out: a tenth of a second's, 1 at least.
    """
    gate: Name | None = None
    """What the rate is named, to share it with other types; left out: the name of the type."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.running is None) == (self.rate is None):
            both = self.running is not None
            raise InvalidInput(
                "A limit has both running and rate." if both else "A limit limits nothing.",
                next_step="Write two of them: Limit(running=…), Limit(rate=…)."
                if both
                else 'Write Limit(running=2) or Limit(rate="100/s").',
            )
        if self.running is not None and (self.burst is not None or self.gate is not None):
            raise InvalidInput(
                "A limit of runs has neither burst nor gate.",
                next_step='Those are of a rate: Limit(rate="100/s", burst=20, gate="mail-api").',
            )
        if self.rate is not None:
            self.gate_of("any")
            if self.per is not None:
                raise InvalidInput(
                    f"A rate has no per, and this one has {self.per!r}.",
                    next_step="It counts all starts of the types that name its gate.",
                )

    def gate_of(self, job_type: str) -> Gate | None:
        """The gate of its rate, if it has one."""
        if self.rate is None:
            return None
        return make_gate(self.gate or job_type, read_rate(self.rate), self.burst)


def read_rate(text: str) -> float:
    """How many a second; raise InvalidInput."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise InvalidInput(f"The rate {text!r} cannot be read.", next_step=_HOW)
    per_second = float(found[1]) / _SECONDS[found[2]]
    check_rate(per_second, text)
    return per_second


def check_rate(per_second: float, text: str) -> None:
    """Raise InvalidInput for one that lets nothing through, or everything."""
    if per_second > _FASTEST:
        what, next_step = f"it is above {_FASTEST} a second", "Leave it out."
    elif not per_second > 0:
        what, next_step = "nothing would ever run", "Pause the type to stop it."
    elif per_second * _YEAR_SECONDS < 1:
        what, next_step = "it is less than one a year", "Pause the type to stop it."
    else:
        return
    raise InvalidInput(f"The rate {text!r} is no limit: {what}.", next_step=next_step)


def rate_text(per_second: float) -> str:
    """A rate as `read_rate` reads it, in the first unit in which it is a whole number."""
    numbers = {unit: round(per_second * seconds, 6) for unit, seconds in _SECONDS.items()}
    whole = [unit for unit, number in numbers.items() if number >= 1 and number == int(number)]
    unit = (whole or [unit for unit, number in numbers.items() if number >= 1] or ["d"])[0]
    return f"{numbers[unit]:.12g}/{unit}"


def make_gate(name: str, per_second: float, burst: int | None) -> Gate:
    """A gate of this rate, with a burst of its own where none is named; raise InvalidInput.

    A burst of 1 at a high rate would lose what comes between two looks of the workers.
    """
    check_rate(per_second, f"{per_second}/s")
    burst = held_as("burst", burst, Count | None) or math.ceil(per_second / 10)
    if burst / per_second > _YEAR_SECONDS:
        raise InvalidInput(
            f"A burst of {burst} at {rate_text(per_second)} is there again after more than a year.",
            next_step="Take a smaller burst, or a higher rate.",
        )
    return Gate(held_as("gate", name, Name), per_second, burst)


def declared_flows(
    names: Sequence[str], limits: Sequence[Limit] | None
) -> tuple[TypeFlow, ...] | None:
    """What a type declares, the same under each of its names; None where it says nothing.

    An empty list says that there are no limits any more. Raise InvalidInput for two of one kind.
    """
    if limits is None:
        return None
    (job_type, *_) = names
    kinds = [("rate" if one.rate else f"running per {one.per or 'group'}") for one in limits]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise InvalidInput(
                f"The job type {job_type!r} has two limits of the kind {kind!r}.",
                next_step="Leave one of them out.",
            )
    by_kind = dict(zip(kinds, limits, strict=True))
    of_group, of_type = by_kind.get("running per group"), by_kind.get("running per type")
    rate = by_kind.get("rate")
    return tuple(
        TypeFlow(
            job_type=name,
            running=None if of_group is None else of_group.running,
            running_in_all=None if of_type is None else of_type.running,
            gate=None if rate is None else rate.gate_of(job_type),
        )
        for name in names
    )
