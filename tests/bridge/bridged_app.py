"""The application whose bridge is killed; store and broker are named by the environment."""

from typing import Any

from gantline import Gantline

jobs = Gantline()


@jobs.job("index")
async def index(payload: dict[str, Any]) -> None: ...


@jobs.job("mail")
async def mail(payload: dict[str, Any]) -> None: ...
