"""The application of the served store, for commands that check payloads by themselves."""

from tests.api.application import make_jobs

jobs = make_jobs("sqlite:///gantline.db")
