"""What streams must look at, since no event says it: progress of jobs, a server that stops."""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final
from uuid import UUID

from gantline.api.port import Jobs
from gantline.api.streams.subscription import Subscription
from gantline.api.views import entity_tag
from gantline.contract.snapshot import JobSnapshot

_log = logging.getLogger("gantline.api")

IsStopping = Callable[[], bool]

_EXTENSION: Final = "gantline.stopping"
_PAGE: Final = 500
_SHARE_OF_TIME: Final = 9
"""However many jobs are watched, that takes a tenth of the time at most."""


class Watch:
    """Show named jobs as they stand, once in a while, to the streams that name them."""

    def __init__(self, jobs: Jobs, *, every_seconds: float) -> None:
        self._jobs = jobs
        self._every_seconds = every_seconds
        self._watching: dict[UUID, set[Subscription]] = {}
        self._looking: asyncio.Task[None] | None = None

    def add(self, subscription: Subscription) -> None:
        for job_id in subscription.filter.job_ids:
            self._watching.setdefault(job_id, set()).add(subscription)
        if self._watching and self._looking is None:
            self._looking = asyncio.create_task(self._look_while_watched())

    def remove(self, subscription: Subscription) -> None:
        for job_id in subscription.filter.job_ids:
            watching = self._watching.get(job_id, set())
            watching.discard(subscription)
            if not watching:
                self._watching.pop(job_id, None)

    async def close(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def look_once(self) -> None:
        ids = list(self._watching)
        for first in range(0, len(ids), _PAGE):
            page = ids[first : first + _PAGE]
            found = await self._jobs.store.get(page, tenant_id=None)
            awaited = await self._find_awaited(page)
            now = self._jobs.clock.now()
            for job_id, by_id in zip(page, found, strict=True):
                for subscription in self._watching.get(job_id, ()):
                    job = awaited.get((subscription.filter.tenant_id, job_id), by_id)
                    if job is None:
                        subscription.lose(job_id)
                    else:
                        subscription.show(job, entity_tag(job, now))

    async def _find_awaited(self, job_ids: list[UUID]) -> dict[tuple[str, UUID], JobSnapshot]:
        """Find the jobs that have come with an id that a stream has named before."""
        awaited: dict[str, set[UUID]] = {}
        for job_id in job_ids:
            for subscription in self._watching.get(job_id, ()):
                if job_id in subscription.filter.awaited:
                    awaited.setdefault(subscription.filter.tenant_id, set()).add(job_id)
        found: dict[tuple[str, UUID], JobSnapshot] = {}
        for tenant_id, some in awaited.items():
            ids = list(some)
            jobs = await self._jobs.manager.get(ids, tenant_id=tenant_id)
            found |= {(tenant_id, one): job for one, job in zip(ids, jobs, strict=True) if job}
        return found

    async def _look_while_watched(self) -> None:
        loop, is_away = asyncio.get_running_loop(), False
        while self._watching:
            began = loop.time()
            try:
                await self.look_once()
                is_away = False
            except Exception as error:
                if not is_away:
                    _log.warning("could not look at jobs, trying again: %s", error)
                is_away = True
            took = loop.time() - began
            await asyncio.sleep(max(self._every_seconds, _SHARE_OF_TIME * took))
        self._looking = None


# -- the server around us: when it is about to stop, streams must end, or it waits for them -------


def notify_stopping(scope: MutableMapping[str, Any], is_stopping: IsStopping) -> None:
    """For a server of ours: let those who serve this request ask whether it is stopping."""
    scope.setdefault("extensions", {})[_EXTENSION] = is_stopping


def stopping_of(scope: Mapping[str, Any]) -> IsStopping:
    given: IsStopping | None = (scope.get("extensions") or {}).get(_EXTENSION)
    return given or _uvicorn_is_stopping


def _uvicorn_is_stopping() -> bool:
    """See it from uvicorn's own handler of SIGTERM; ASGI has no message for it before it is done.

    uvicorn waits for open responses, and notifies the application only when there are none left.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
