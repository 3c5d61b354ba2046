"""The shop over HTTP, with its store in the environment and no worker: a test kills it."""

from tests.api.application import ByName
from windlass import Windlass

jobs = Windlass()


@jobs.job("ship")
async def ship(order: int) -> dict[str, int]:
    return {"order": order}


api = jobs.api(authenticator=ByName())
