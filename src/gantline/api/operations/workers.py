"""Workers: the processes that run jobs, as they registered themselves."""

import msgspec
from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.documents import WorkerDocument, WorkersPage
from gantline.api.operation import Operations
from gantline.api.paging import name_cursor_text, page_response, read_name_cursor
from gantline.api.requests import WorkersQuery
from gantline.auth.authorizer import Target
from gantline.contract.records import SESSIONS


class Workers(Operations):
    async def listed(self, call: Call) -> Response:
        query: WorkersQuery = call.query
        await self._access.target(call, Target(tenant_id=call.principal.tenant_id))
        after = "" if query.cursor is None else read_name_cursor(query.cursor)
        page = await self._jobs.store.read_records(SESSIONS, after=after, limit=query.limit)
        items = [msgspec.json.decode(one.value, type=WorkerDocument) for one in page]
        further = name_cursor_text(page[-1].key) if len(page) == query.limit else None
        return page_response(call, WorkersPage(items=items, next_cursor=further))
