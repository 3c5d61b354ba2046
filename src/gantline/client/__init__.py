"""A small typed client of the HTTP API, blocking and asynchronous.

Its answers are the API's own documents (`gantline.api.documents`), its errors the library's own
(`gantline.contract.errors`). It needs the extra `gantline[client]`.
"""

from gantline.api.requests import DeliveriesToReplay, JobToSubmit, RedriveByFilter, WebhookToKeep
from gantline.api.schedule_documents import NewSchedule, ScheduleSent
from gantline.api.searching import FindOptions
from gantline.client.submission import JobOptions, new_job
from gantline.importing import extra

with extra("client"):
    from gantline.client.async_client import AsyncClient
    from gantline.client.blocking import Client
    from gantline.client.event_stream import StreamEvent
    from gantline.client.exchange import Retries

__all__ = [
    "AsyncClient",
    "Client",
    "DeliveriesToReplay",
    "FindOptions",
    "JobOptions",
    "JobToSubmit",
    "NewSchedule",
    "RedriveByFilter",
    "Retries",
    "ScheduleSent",
    "StreamEvent",
    "WebhookToKeep",
    "new_job",
]
