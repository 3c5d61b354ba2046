"""Statistics: the jobs of a tenant in numbers, and what an autoscaler needs."""

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import ScaleDocument, StatisticsDocument
from gantline.api.json_response import JsonResponse
from gantline.api.operation import Operations
from gantline.api.requests import ScaleQuery, StatisticsQuery
from gantline.api.tallies import fullness, lane_document, oldest_age_seconds, summed
from gantline.contract.query import LaneCounts


class Statistics(Operations):
    async def all(self, call: Call) -> Response:
        query: StatisticsQuery = call.query
        lanes = await self._lanes(call, query)
        now = await self._jobs.store.ping()
        fullest = sorted(lanes, key=lambda lane: fullness([lane]), reverse=True)[: query.limit]
        shown = sorted(fullest, key=lambda lane: (lane.queue, lane.job_type))
        document = StatisticsDocument(
            lanes=[lane_document(lane, now) for lane in shown],
            lanes_omitted=len(lanes) - len(shown),
            **summed(lanes, now),
        )
        return JsonResponse(200, document)

    async def scale(self, call: Call) -> Response:
        lanes = await self._lanes(call, call.query)
        backlog = sum(lane.queued - lane.scheduled for lane in lanes)
        running = sum(lane.running for lane in lanes)
        document = ScaleDocument(
            backlog=backlog,
            running=running,
            demand=backlog + running,
            oldest_age_seconds=oldest_age_seconds(lanes, await self._jobs.store.ping()) or 0.0,
        )
        return JsonResponse(200, document)

    async def _lanes(self, call: Call, query: ScaleQuery) -> list[LaneCounts]:
        tenant_id = await self._access.tenant(call, query.tenant_id)
        queues, kinds = frozenset(query.queue), frozenset(query.job_type)
        lanes = [
            lane
            for lane in await self._jobs.store.counts(tenant_id=tenant_id)
            if (not queues or lane.queue in queues) and (not kinds or lane.job_type in kinds)
        ]
        return await self._access.visible_rows(call, tenant_id, lanes)
