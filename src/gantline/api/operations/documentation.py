"""Documentation: the OpenAPI document, its page, and a page for every type of problem."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from gantline.api.answer import JSON, Answer, encode
from gantline.api.call import Call
from gantline.api.openapi import openapi_document
from gantline.api.operation import Html, Operation
from gantline.api.pages import documentation_page, problem_page, problems_page
from gantline.api.problems import KINDS, ApiCode, Refused

_CACHED = (b"cache-control", b"public, max-age=3600")


class Documentation:
    """For everybody: it tells nothing about anybody's jobs or types."""

    def __init__(self, others: Sequence[Operation], *, is_shown: bool) -> None:
        self._others = others
        self._is_shown = is_shown

    @property
    def operations(self) -> list[Operation]:
        problems = [
            _public("listProblems", "/api/problems", "List the types of problems.", self.problems),
            _public(
                "getProblem",
                "/api/problems/{problem}",
                "Explain a type of problem.",
                self.problem,
                problems=(ApiCode.NOT_FOUND,),
            ),
        ]
        shown = [
            _public(
                "getOpenApi", "/api/openapi.json", "This document.", self.openapi, answer=object
            ),
            _public("readDocumentation", "/api/docs", "This document, to be read.", self.page),
        ]
        return problems + (shown if self._is_shown else [])

    @cached_property
    def document(self) -> dict[str, Any]:
        return openapi_document([*self._others, *self.operations])

    @cached_property
    def _encoded(self) -> bytes:
        return encode(self.document)

    async def openapi(self, call: Call) -> Answer:
        return Answer(200, self._encoded, (JSON, _CACHED))

    async def page(self, call: Call) -> Answer:
        return documentation_page(self.document, call.root)

    async def problems(self, call: Call) -> Answer:
        return problems_page(call.root)

    async def problem(self, call: Call) -> Answer:
        for kind in KINDS.values():
            if kind.slug == call.value("problem"):
                return problem_page(kind, call.root)
        raise Refused(ApiCode.NOT_FOUND, "There is no such type of problem.")


def _public(
    name: str,
    path: str,
    summary: str,
    run: Any,
    *,
    answer: Any = Html,
    problems: tuple[str, ...] = (),
) -> Operation:
    return Operation(
        name=name,
        method="GET",
        path=path,
        tag="documentation",
        summary=summary,
        run=run,
        answers={200: answer},
        problems=problems,
        is_public=True,
    )
