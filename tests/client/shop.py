"""An application as users write it, served by `windlass api` with API keys."""

import os

from tests.api.application import make_jobs

jobs = make_jobs(os.environ["WINDLASS_TEST_STORE"])
