"""Documentation: the OpenAPI document, its page, and a page for every type of problem."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from starlette.responses import Response

from gantline.api.call import Call
from gantline.api.json_response import encode
from gantline.api.pages import documentation_page, problem_page, problems_page
from gantline.api.problems import KINDS, ApiCode, Refused


class Documentation:
    """For everybody: it tells nothing about anybody's jobs or types."""

    def __init__(self, document: Callable[[], Mapping[str, Any]]) -> None:
        self._document = document

    @cached_property
    def _encoded(self) -> bytes:
        return encode(self._document())

    async def openapi(self, call: Call) -> Response:
        headers = {"content-type": "application/json", "cache-control": "public, max-age=3600"}
        return Response(self._encoded, headers=headers)

    async def page(self, call: Call) -> Response:
        return documentation_page(self._document(), call.root)

    async def problems(self, call: Call) -> Response:
        return problems_page(call.root)

    async def problem(self, call: Call) -> Response:
        for kind in KINDS.values():
            if kind.slug == call.path_params["problem"]:
                return problem_page(kind, call.root)
        raise Refused(ApiCode.NOT_FOUND, "There is no such type of problem.")
