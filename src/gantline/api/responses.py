"""Response factories: how the three kinds of answers look. Replace them to shape your own."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from gantline.api.documents import AcceptedDocument, ProblemDocument, StatusDocument

if TYPE_CHECKING:
    from starlette.responses import Response

    from gantline.api.json_response import JsonResponse


class Responses:
    """Make responses of documents. Subclass it, and give yours to `jobs.api(responses=…)`.

    `headers` are those that the contract asks for (Location, ETag, Retry-After …): keep them.
    """

    def submitted(self, accepted: AcceptedDocument, headers: Mapping[str, str]) -> "Response":
        return _json_response()(202, accepted, headers)

    def status(self, status: StatusDocument, headers: Mapping[str, str]) -> "Response":
        return _json_response()(200, status, headers, cache="private, no-cache")

    def error(self, problem: ProblemDocument, headers: Mapping[str, str]) -> "Response":
        media_type = b"application/problem+json"
        return _json_response()(problem.status, problem, headers, media_type=media_type)


@cache
def _json_response() -> "type[JsonResponse]":
    """Not imported at the top: clients import this package too, and need no web framework."""
    from gantline.api.json_response import JsonResponse

    return JsonResponse
