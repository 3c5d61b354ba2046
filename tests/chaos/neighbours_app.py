"""The application of two tenants on one server, for the run with a bad neighbour."""

from gantline import Gantline

jobs = Gantline()


@jobs.job("tidy", queue="quiet", subject=lambda name: name)
async def tidy(name: str) -> dict[str, str]:
    return {"tidied": name}


@jobs.job("flood", queue="loud", max_depth=5_000)
async def flood(name: str) -> None:
    """What the bad neighbour submits; its queue is soon full."""
