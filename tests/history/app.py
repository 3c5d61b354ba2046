"""An application that a worker process runs, on the store that the settings name."""

from gantline import Gantline
from tests.app_under_test import group

jobs = Gantline(include=[group])
