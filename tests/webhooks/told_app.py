"""An application whose jobs are told to others; its store and its key are in the environment."""

from gantline import Gantline

jobs = Gantline()


@jobs.job("ship", queue="default")
async def ship(order: int) -> dict[str, int]:
    return {"order": order}
