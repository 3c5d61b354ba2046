"""What is typed in: seconds, spans of time, queues with slots, limits for recycling, names."""

import math
import re
from datetime import datetime, timedelta
from ipaddress import ip_network
from typing import Any, Final, NamedTuple
from uuid import UUID

import click

from gantline.app.settings import DEFAULT, Settings
from gantline.auth.rate_limit import RateLimit, read_rate_limit
from gantline.contract.clock import as_utc
from gantline.contract.errors import InvalidInput
from gantline.contract.text import name_problem
from gantline.runtime import now
from gantline.worker.settings import DEFAULT_SLOTS, WorkerSettings

_SPAN: Final = re.compile(r"(\d{1,6})([dhms])", re.ASCII)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


class Seconds(click.FloatRange):
    """A finite number of seconds from 0 on, or a span such as 5m. A plain FloatRange lets nan
    through."""

    name = "span"

    def __init__(self, most: float | None = None) -> None:
        super().__init__(0, most)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, str) and _SPAN.fullmatch(value):
            value = span(value).total_seconds()
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def span(text: str) -> timedelta:
    """Read a whole number and its unit: 90d, 12h, 30m, 45s."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a span of time; write 90d, 12h, 30m or 45s.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def instant_or_span(text: str) -> datetime:
    """Read an instant, or how long ago; an instant without a zone is in UTC."""
    try:
        return as_utc(datetime.fromisoformat(text))
    except ValueError:
        pass
    if not _SPAN.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no instant; write 2h, 30d or 2026-11-01T12:00.")
    return now() - span(text)


def instant_ahead(text: str) -> datetime:
    """Read an instant, or how far ahead; an instant without a zone is in UTC."""
    return now() + span(text) if _SPAN.fullmatch(text) else instant_or_span(text)


def span_text(length: timedelta) -> str:
    """As one would type it, in the largest unit that fits: 90d, 12h, 30m, 45s."""
    for unit, name in _UNITS.items():
        if length and not length % timedelta(**{name: 1}):
            return f"{length // timedelta(**{name: 1})}{unit}"
    return f"{length.total_seconds():g}s"


def check_name(kind: str, name: str) -> None:
    """Raise InvalidInput for what can be no name of a queue or a type."""
    if not name or (problem := name_problem(name, 128)):
        raise InvalidInput(f"{name[:64]!r} is not a {kind}: it {problem if name else 'is empty'}.")


def parse_id(text: str, *, what: str = "a job id") -> UUID:
    """Read the id of a job, a webhook or a delivery."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(f"{text[:64]!r} is not {what}.", next_step="It is a UUID.") from None


MOST_PROCESSES: Final = 64

OF_WORKERS: Final = {
    "lease_seconds": "lease",
    "renew_seconds": "renew_every",
    "poll_seconds": "poll",
    "drain_seconds": "drain",
    "slots": "slots",
    "claim_batch": "claim_batch",
}
"""The settings that say how a worker works, and what WorkerSettings calls them."""

_LEAST_SECONDS: Final = {"lease": 1, "renew_every": 0.001, "poll": 0.001, "drain": 0}


def named_for_workers(settings: Settings, in_code: WorkerSettings) -> dict[str, Any]:
    """What variables and files say of how a worker works, as fields of WorkerSettings."""
    named: dict[str, Any] = {}
    lease = in_code.lease
    for name, field in OF_WORKERS.items():
        if settings.value(name).source == DEFAULT:
            continue
        if name.endswith("_seconds"):
            most = lease.total_seconds() / 2 if field == "renew_every" else 1e6
            seconds = settings.number(name, least=_LEAST_SECONDS[field], most=most)
            named[field] = timedelta(seconds=seconds)
            lease = named.get("lease", lease)
        else:
            named[field] = settings.whole(name, least=1, most=1_000_000)
    return named


def rate_limits(settings: Settings) -> tuple[RateLimit | None, RateLimit | None]:
    """How often a key, and a tenant, may ask the API; None for as often as they like."""
    per_key, per_tenant = (
        read_rate_limit(text) if (text := settings[name]) else None
        for name in ("rate_limit_per_key", "rate_limit_per_tenant")
    )
    return per_key, per_tenant


def trusted_proxies(settings: Settings) -> list[str]:
    """Whose word about a caller's address is taken; raise InvalidInput."""
    text = settings["trusted_proxies"]
    try:
        return [str(ip_network(part)) for part in text.replace(",", " ").split()]
    except ValueError as error:
        raise InvalidInput(
            f"trusted_proxies is {text!r}: {error}.",
            next_step="Write addresses and networks: 10.0.0.5, 10.1.0.0/16.",
        ) from None


def parse_queues(text: str) -> dict[str, int]:
    """Read `documents:10,default` into slots per queue; 10 where no number is given."""
    queues: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, slots = part.rpartition(":") if ":" in part else (part, "", str(DEFAULT_SLOTS))
        if not name or not slots.isdigit() or int(slots) < 1:
            raise InvalidInput(
                f"{part!r} is not a queue with slots.", next_step="Write it as documents:10."
            )
        queues[name] = int(slots)
    if text and not queues:
        raise InvalidInput(f"{text!r} names no queue.", next_step="Write it as documents:10.")
    return queues


class Recycle(NamedTuple):
    """When a worker process is to be started anew; None for never."""

    jobs: int | None = None
    memory_bytes: int | None = None

    @classmethod
    def of(cls, settings: WorkerSettings) -> "Recycle":
        return cls(settings.recycle_after_jobs, settings.recycle_above_bytes)


def parse_recycle(text: str) -> Recycle:
    """Read `10000jobs,512MB`."""
    limits = Recycle()
    for part in filter(None, (piece.strip().lower() for piece in text.split(","))):
        number = part.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = part.removeprefix(number)
        if not number.isdigit() or unit not in ("jobs", "mb", "gb"):
            raise InvalidInput(
                f"{part!r} is not a limit for recycling.", next_step="Write 10000jobs,512MB."
            )
        if unit == "jobs":
            limits = limits._replace(jobs=int(number))
        else:
            size = int(number) * 1024 ** (2 if unit == "mb" else 3)
            limits = limits._replace(memory_bytes=size)
    return limits
