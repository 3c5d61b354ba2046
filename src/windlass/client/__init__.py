"""A small typed client of the HTTP API, blocking and asynchronous.

Its answers are the API's own documents (`windlass.api.documents`), its errors the library's own
(`windlass.contract.errors`). It needs the extra `windlass[client]`.
"""

from windlass.api.schedule_documents import NewSchedule, ScheduleSent
from windlass.api.sent import DeliveriesToReplay, JobToSubmit, RedriveByFilter, WebhookToKeep
from windlass.client.exchange import Retries
from windlass.client.following import JobEvent
from windlass.client.submission import JobOptions, new_job
from windlass.contract.extras import extra

with extra("client"):
    from windlass.client.awaiting import AsyncClient
    from windlass.client.blocking import Client

__all__ = [
    "AsyncClient",
    "Client",
    "DeliveriesToReplay",
    "JobEvent",
    "JobOptions",
    "JobToSubmit",
    "NewSchedule",
    "RedriveByFilter",
    "Retries",
    "ScheduleSent",
    "WebhookToKeep",
    "new_job",
]
