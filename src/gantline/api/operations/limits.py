"""Limits: which hold of each type, and why; setting and clearing them; gates and groups."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.json_response import JsonResponse
from gantline.api.limit_documents import (
    ClearQuery,
    GatesDocument,
    GroupsPage,
    GroupsQuery,
    LimitsDocument,
    LimitsToSet,
)
from gantline.api.limit_views import (
    gate_documents,
    group_document,
    limit_document,
    limit_documents,
    override_of,
)
from gantline.api.operation import Operations
from gantline.api.problems import invalid_parameter
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.contract.errors import InvalidInput
from gantline.contract.flow import Gate, TypeFlow
from gantline.contract.job import DEFAULT_QUEUE
from gantline.contract.text import name_problem
from gantline.flow.rules import Rule

_NAME_LIMIT: Final = 128


class LimitOperations(Operations):
    async def listed(self, call: Call) -> Response:
        tenant_id = await self._access.tenant(call, None)
        await self._jobs.limits.refresh(max_age_seconds=1)
        every = limit_documents(self._jobs.limits, shows_who=await self._shows_who(call))
        items = await self._access.visible_rows(call, tenant_id, every)
        return JsonResponse(200, LimitsDocument(items=items))

    async def get(self, call: Call) -> Response:
        return await self._standing(call, await self._allowed(call))

    async def set(self, call: Call) -> Response:
        asked: LimitsToSet = call.sent
        before = await self._before(call)
        if asked.changes_gate:
            await self._all_of_gate(call, asked.gate, before.gate)
        name = await self._allowed(call, msgspec.to_builtins(asked))
        override = override_of(asked, before=before)
        await self._jobs.limits.set(name, override, by=call.principal.id)
        return await self._standing(call, name)

    async def clear(self, call: Call) -> Response:
        query: ClearQuery = call.query
        await self._all_of_gate(call, UNSET, (await self._before(call)).gate)
        name = await self._allowed(call, msgspec.to_builtins(query))
        await self._jobs.limits.clear(name, by=call.principal.id, declared=query.declared)
        return await self._standing(call, name)

    async def gates(self, call: Call) -> Response:
        await self._access.target(call, Target(tenant_id=call.principal.tenant_id))
        store, limits = self._jobs.store, self._jobs.limits
        await limits.refresh(max_age_seconds=1)
        items = await gate_documents(store, limits, await store.ping())
        return JsonResponse(200, GatesDocument(items=items))

    async def groups(self, call: Call) -> Response:
        query: GroupsQuery = call.query
        name = self._name(call)
        tenant_id = query.tenant_id or call.principal.tenant_id
        await self._access.target(call, Target(tenant_id=tenant_id, job_type=name))
        declared = self._jobs.find_type(name)
        queue = query.queue or (declared.handler.queue if declared else DEFAULT_QUEUE)
        try:
            page = await self._jobs.store.groups(
                queue, name, tenant_id=tenant_id, limit=query.limit, after=query.cursor or ""
            )
        except InvalidInput as error:
            raise invalid_parameter("cursor", "is not one that was given") from error
        items = [group_document(queue, name, state) for state in page.items]
        return JsonResponse(200, GroupsPage(items=items, next_cursor=page.next or None))

    async def _allowed(self, call: Call, details: Mapping[str, Any] | None = None) -> str:
        """The type of the path, if the caller may do this to it; also one that nobody declares."""
        name = self._name(call)
        target = Target(tenant_id=call.principal.tenant_id, job_type=name)
        await self._access.target(call, target, what=f"type:{name}", details=details)
        return name

    async def _before(self, call: Call) -> TypeFlow:
        await self._jobs.limits.refresh(max_age_seconds=0)
        name = self._name(call)
        return self._jobs.limits.rules.get(name, Rule()).holding(name)

    async def _all_of_gate(self, call: Call, named: str | UnsetType, before: Gate | None) -> None:
        """Raise unless the caller may do this to all types whose gate it would change."""
        gates = {named, before.name if before else UNSET}
        for flow in self._jobs.limits.all_holding:
            if flow.gate is not None and flow.gate.name in gates:
                target = Target(tenant_id=call.principal.tenant_id, job_type=flow.job_type)
                if flow.job_type != self._name(call):
                    await self._access.target(call, target, what=f"type:{flow.job_type}")

    def _name(self, call: Call) -> str:
        name: str = call.path_params["job_type"]
        if problem := name_problem(name, _NAME_LIMIT) or (not name and "is empty"):
            raise invalid_parameter("job_type", problem)
        return name

    async def _standing(self, call: Call, name: str) -> Response:
        await self._jobs.limits.refresh(max_age_seconds=1)
        shows_who = await self._shows_who(call)
        return JsonResponse(200, limit_document(name, self._jobs.limits, shows_who=shows_who))

    async def _shows_who(self, call: Call) -> bool:
        target = Target(tenant_id=call.principal.tenant_id)
        return await self._access.may(call, Action.MANAGE_TYPES, target)
