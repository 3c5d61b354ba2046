"""Playing worker and client, so that a test says what there is to be heard."""

from typing import Any

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.api.seal import read_seal
from gantline.api.streams.settings import StreamSettings
from gantline.contract.outcome import Outcome
from gantline.contract.snapshot import Run
from gantline.contract.wakeup import Hint
from tests.api import playing
from tests.api.conftest import Asker
from tests.api.playing import claim, success
from tests.api.streams.event_stream import Heard, opened
from tests.api.test_submit import DOCUMENT, submit

HASTY = ApiSettings(
    streams=StreamSettings(progress_seconds=0.01, check_seconds=0.01, ping_seconds=0.05)
)
OPERATOR_DETAIL = ("Traceback", "secret detail", "payload", "host-1-worker", "documentId")


def streams(**settings: Any) -> ApiSettings:
    return ApiSettings(streams=StreamSettings(**settings))


async def new_job(ask: Asker, body: Any = DOCUMENT, who: str = "alice") -> str:
    job_id: str = (await submit(ask, body, who)).json()["jobId"]
    return job_id


async def settle(jobs: Gantline, run: Run, outcome: Outcome) -> None:
    """As a worker does it, which tells those who wait."""
    await playing.settle(jobs, run, outcome)
    jobs.wakeup.notify(Hint.ENDED)


async def run_all(jobs: Gantline, outcome: Outcome | None = None) -> None:
    """Run what is due, with one outcome for all."""
    for run in await claim(jobs):
        await settle(jobs, run, outcome or success())


def names(heard: list[Heard]) -> list[str]:
    return [event.name for event in heard]


async def sealed(jobs: Gantline, number: int, tenant_id: str = "acme") -> str:
    """The id by which a client of the tenant has heard all up to this event."""
    return (await read_seal(jobs.store)).number(number, tenant_id)


async def numbers(jobs: Gantline, heard: list[Heard]) -> list[int]:
    """The positions that came with these events; -1 where there was none yet."""
    seal = await read_seal(jobs.store)
    return [opened(seal, event.last_id) for event in heard]
