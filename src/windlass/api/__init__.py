"""The HTTP contract: submit with 202, a status that tells the truth, and nobody else's jobs."""

from windlass.api.answer import Answer
from windlass.api.application import Api
from windlass.api.responses import Responses
from windlass.api.settings import ApiSettings

__all__ = ["Answer", "Api", "ApiSettings", "Responses"]
