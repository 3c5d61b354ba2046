"""What the operations share, made once per API."""

from typing import NamedTuple

from gantline.api.access import Access
from gantline.api.front_desk import FrontDesk
from gantline.api.job_cache import JobCache
from gantline.api.port import Jobs
from gantline.api.responses import Responses
from gantline.api.settings import ApiSettings
from gantline.api.streams.identity import Identity
from gantline.api.streams.streams import Streams
from gantline.api.submitting import Submitter
from gantline.auth.stream_tokens import StreamTokens


class Parts(NamedTuple):
    jobs: Jobs
    settings: ApiSettings
    responses: Responses
    desk: FrontDesk
    access: Access
    cache: JobCache
    submitter: Submitter
    streams: Streams
    stream_identity: Identity
    stream_tokens: StreamTokens | None
