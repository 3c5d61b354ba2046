"""An API whose streams are hasty, and somebody who listens to them."""

from collections.abc import AsyncIterator

import pytest

from gantline import Gantline
from gantline.api.application import Api
from tests.api.application import AuditKept, ByName
from tests.api.streams.event_stream import Listener, listening_to
from tests.api.streams.playing import HASTY


@pytest.fixture
def api(jobs: Gantline, audit: AuditKept) -> Api:
    return jobs.api(authenticator=ByName(), audit=audit, settings=HASTY)


@pytest.fixture
async def listen(api: Api) -> AsyncIterator[Listener]:
    async with listening_to(api) as listener:
        yield listener
