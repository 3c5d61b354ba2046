"""What the tests of the client talk to: the API's application, with or without a worker."""

import os

from starlette.applications import Starlette
from starlette.routing import Mount

from tests.api.application import ByName, make_jobs

jobs = make_jobs(os.environ["GANTLINE_TEST_STORE"])
app = Starlette(
    lifespan=jobs.lifespan(worker=os.environ.get("GANTLINE_TEST_WORKER") == "yes"),
    routes=[Mount("/", jobs.api(authenticator=ByName()))],
)
