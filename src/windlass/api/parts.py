"""What the operations share, made once per API."""

from typing import NamedTuple

from windlass.api.access import Access
from windlass.api.endings import Endings
from windlass.api.front_desk import FrontDesk
from windlass.api.job_cache import JobCache
from windlass.api.port import Jobs
from windlass.api.responses import Responses
from windlass.api.settings import ApiSettings
from windlass.api.streams.identity import Identity
from windlass.api.streams.streams import Streams
from windlass.api.submitting import Submitter
from windlass.auth.stream_tokens import StreamTokens


class Parts(NamedTuple):
    jobs: Jobs
    settings: ApiSettings
    responses: Responses
    desk: FrontDesk
    access: Access
    cache: JobCache
    endings: Endings
    submitter: Submitter
    streams: Streams
    stream_identity: Identity
    stream_tokens: StreamTokens | None
