"""The shop over HTTP, with its store in the environment and no worker: a test kills it."""

from gantline import Gantline
from tests.api.application import ByName

jobs = Gantline()


@jobs.job("ship")
async def ship(order: int) -> dict[str, int]:
    return {"order": order}


api = jobs.api(authenticator=ByName())
