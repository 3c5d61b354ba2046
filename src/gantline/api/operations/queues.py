"""Queues: how full they are; pausing, resuming and capping them."""

from collections.abc import Mapping, Set
from typing import Any, Final

import msgspec
from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import QueuesDocument
from gantline.api.json_response import JsonResponse
from gantline.api.operation import Operations
from gantline.api.problems import invalid_parameter
from gantline.api.requests import DepthCap, QueuesQuery
from gantline.api.tallies import fullness, queue_document, queue_state
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.query import LaneCounts
from gantline.contract.text import name_problem

_NAME_LIMIT: Final = 128


class Queues(Operations):
    async def listed(self, call: Call) -> Response:
        query: QueuesQuery = call.query
        tenant_id = await self._access.tenant(call, query.tenant_id)
        switches, store = self._jobs.switches, self._jobs.store
        await switches.refresh()
        lanes: dict[str, list[LaneCounts]] = {}
        counted = await store.counts(tenant_id=tenant_id)
        for lane in await self._access.visible_rows(call, tenant_id, counted):
            lanes.setdefault(lane.queue, []).append(lane)
        for queue in await self._switched(call, tenant_id):
            lanes.setdefault(queue, [])
        chosen = [queue for queue in lanes if not query.queue or queue in query.queue]
        fullest = sorted(chosen, key=lambda queue: fullness(lanes[queue]), reverse=True)
        now = await store.ping()
        items = [
            queue_document(queue, lanes[queue], switches, now)
            for queue in sorted(fullest[: query.limit])
        ]
        return JsonResponse(200, QueuesDocument(items=items, omitted=len(chosen) - len(items)))

    async def _switched(self, call: Call, tenant_id: str) -> Set[str]:
        """Queues that are paused or capped, whichever tenants have jobs in them.

        The name of a queue may reveal another tenant; those of declared types are known anyway.
        """
        switches = self._jobs.switches
        switched = switches.paused_queues | switches.capped_queues
        if await self._access.may(call, Action.MANAGE_QUEUES, Target(tenant_id=tenant_id)):
            return switched
        declared = [one.handler for one in self._jobs.job_types]
        known = await self._access.visible_rows(call, tenant_id, declared, action=Action.READ_TYPES)
        return switched & {queue for handler in known for queue in handler.all_queues}

    async def pause(self, call: Call) -> Response:
        queue = await self._managed(call)
        await self._jobs.switches.pause_queue(queue)
        return self._state(queue)

    async def resume(self, call: Call) -> Response:
        queue = await self._managed(call)
        await self._jobs.switches.pause_queue(queue, paused=False)
        return self._state(queue)

    async def cap(self, call: Call) -> Response:
        asked: DepthCap = call.sent
        queue = await self._managed(call, msgspec.to_builtins(asked))
        await self._jobs.switches.cap_queue(
            queue, asked.max_depth, per_tenant=asked.max_depth_per_tenant
        )
        return self._state(queue)

    async def _managed(self, call: Call, details: Mapping[str, Any] | None = None) -> str:
        """The queue of the path, if the caller may switch queues."""
        queue: str = call.path_params["queue"]
        if problem := name_problem(queue, _NAME_LIMIT) or (not queue and "is empty"):
            raise invalid_parameter("queue", problem)
        target = Target(tenant_id=call.principal.tenant_id)
        await self._access.target(call, target, what=f"queue:{queue}", details=details)
        return queue

    def _state(self, queue: str) -> Response:
        return JsonResponse(200, queue_state(queue, self._jobs.switches))
