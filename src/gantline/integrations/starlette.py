"""Starlette, or any ASGI framework that can mount an application.

api = jobs.api(authenticator=keys)
app = Starlette(
    routes=[api.enqueue("/documents/{document_id}/index", index_document), Mount("/", api)],
    lifespan=jobs.lifespan(worker=True),
)
"""

from gantline.api.application import Api
from gantline.api.async_endpoint import Accepted, AsyncEndpoint

__all__ = ["Accepted", "Api", "AsyncEndpoint"]
