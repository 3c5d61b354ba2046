"""A quota: what a rate limit leaves, as the headers tell it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from gantline.api.answer import Header


class Quota(NamedTuple):
    """What is left of a limit, as far as this process knows."""

    limit: int
    remaining: int
    reset_seconds: float
    """Until all of it would be there again."""

    @property
    def headers(self) -> Sequence[Header]:
        """As the IETF's draft of RateLimit header fields has them."""
        return (
            (b"ratelimit-limit", b"%d" % self.limit),
            (b"ratelimit-remaining", b"%d" % self.remaining),
            (b"ratelimit-reset", b"%d" % math.ceil(self.reset_seconds)),
        )
