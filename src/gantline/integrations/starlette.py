"""Starlette, or any ASGI framework that can mount an application.

api = jobs.api(authenticator=keys)
app = Starlette(
    routes=[api.enqueue("/documents/{document_id}/index", index_document), Mount("/", api)],
    lifespan=jobs.lifespan(worker=True),
)
"""

from gantline.api.accepted import Accepted
from gantline.api.application import Api
from gantline.api.async_endpoint import AsyncEndpoint

__all__ = ["Accepted", "Api", "AsyncEndpoint"]
