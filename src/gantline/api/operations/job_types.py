"""Job types: what there is to submit, with its schemas; the kill switch and the pause."""

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import JobTypeDocument, JobTypesDocument
from gantline.api.json_response import JsonResponse
from gantline.api.operation import Operations
from gantline.api.port import DeclaredJob
from gantline.api.problems import ApiCode, Refused
from gantline.api.tallies import type_state
from gantline.auth.authorizer import Target


class JobTypes(Operations):
    async def listed(self, call: Call) -> Response:
        tenant_id = await self._access.tenant(call, None)
        await self._jobs.switches.refresh()
        every = [self._document(job_type) for job_type in self._jobs.job_types]
        items = await self._access.visible_rows(call, tenant_id, every)
        return JsonResponse(200, JobTypesDocument(items=items))

    async def get(self, call: Call) -> Response:
        job_type = await self._allowed(call)
        await self._jobs.switches.refresh()
        return JsonResponse(200, self._document(job_type))

    async def disable(self, call: Call) -> Response:
        job_type = await self._allowed(call)
        await self._jobs.switches.disable_type(job_type.name)
        return self._state(job_type.name)

    async def enable(self, call: Call) -> Response:
        job_type = await self._allowed(call)
        await self._jobs.switches.disable_type(job_type.name, disabled=False)
        return self._state(job_type.name)

    async def pause(self, call: Call) -> Response:
        job_type = await self._allowed(call)
        await self._jobs.switches.pause_type(job_type.name)
        return self._state(job_type.name)

    async def resume(self, call: Call) -> Response:
        job_type = await self._allowed(call)
        await self._jobs.switches.pause_type(job_type.name, paused=False)
        return self._state(job_type.name)

    async def _allowed(self, call: Call) -> DeclaredJob:
        asked = call.path_params["job_type"]
        job_type = self._jobs.find_type(asked)
        name = job_type.name if job_type else asked[:128]  # rights are for a type, not its aliases
        target = Target(tenant_id=call.principal.tenant_id, job_type=name)
        await self._access.target(call, target, what=f"type:{name}")
        if job_type is None:
            raise Refused(ApiCode.NOT_FOUND, "There is no such job type.")
        return job_type

    def _state(self, name: str) -> Response:
        return JsonResponse(200, type_state(name, self._jobs.switches))

    def _document(self, job_type: DeclaredJob) -> JobTypeDocument:
        handler, switches = job_type.handler, self._jobs.switches
        results = handler.result_codec
        return JobTypeDocument(
            job_type=job_type.name,
            aliases=list(handler.aliases),
            queue=handler.queue,
            queues=list(handler.queues),
            priority=job_type.priority,
            max_attempts=handler.policy.retry.attempts,
            timeout_seconds=handler.timeout.total_seconds(),
            max_depth=job_type.caps.of_type,
            max_depth_per_tenant=job_type.caps.of_type_per_tenant,
            payload_version=handler.version,
            payload_schema=handler.codec.schema(),
            result_schema=results.schema() if results else {"type": "null"},
            disabled=job_type.name in switches.disabled_types,
            paused=job_type.name in switches.paused_types,
        )
