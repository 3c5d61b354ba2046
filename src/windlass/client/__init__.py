"""A small typed client of the HTTP API, blocking and asynchronous.

Its answers are the API's own documents (`windlass.api.documents`), its errors the library's own
(`windlass.contract.errors`). It needs the extra `windlass[client]`.
"""

from windlass.api.sent import JobToSubmit, RedriveByFilter
from windlass.client.awaiting import AsyncClient
from windlass.client.blocking import Client
from windlass.client.exchange import Retries
from windlass.client.following import JobEvent
from windlass.client.submission import JobOptions, new_job

__all__ = [
    "AsyncClient",
    "Client",
    "JobEvent",
    "JobOptions",
    "JobToSubmit",
    "RedriveByFilter",
    "Retries",
    "new_job",
]
