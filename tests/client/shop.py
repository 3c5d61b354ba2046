"""An application as users write it, served by `gantline api` with API keys."""

import os

from tests.api.application import make_jobs

jobs = make_jobs(os.environ["GANTLINE_TEST_STORE"])
