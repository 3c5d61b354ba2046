"""A small typed client of the HTTP API, blocking and asynchronous.

Its answers are the API's own documents (`gantline.api.documents`), its errors the library's own
(`gantline.contract.errors`). It needs the extra `gantline[client]`.
"""

from gantline.api.schedule_documents import NewSchedule, ScheduleSent
from gantline.api.sent import DeliveriesToReplay, JobToSubmit, RedriveByFilter, WebhookToKeep
from gantline.client.exchange import Retries
from gantline.client.following import JobEvent
from gantline.client.submission import JobOptions, new_job
from gantline.contract.extras import extra

with extra("client"):
    from gantline.client.awaiting import AsyncClient
    from gantline.client.blocking import Client

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
