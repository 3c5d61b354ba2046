"""The HTTP contract: submit with 202, a true status, and no access to others' jobs.

The documents are shared with the client, which must not need a web framework: so the application
itself, which does, is imported from `gantline.api.application`, or made by `jobs.api(…)`.
"""

from gantline.api.rate_limits import RateLimits
from gantline.api.responses import Responses
from gantline.api.settings import ApiSettings

__all__ = ["ApiSettings", "RateLimits", "Responses"]
