"""Capture: how a request to a route of the user's own becomes the payload of a job.

The body is the payload. Values of the route and the query, and headers that were allowed, become
fields of it. What comes from two places must be the same in both.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gantline.api.body import Receive, check_json, decode, read_body
from gantline.api.call import Call
from gantline.api.documents import ErrorDetail
from gantline.api.operation import Operation
from gantline.api.problems import Refused, invalid_parameter, refused_for
from gantline.api.served import parameters
from gantline.contract.errors import Code, InvalidInput, InvalidPayload
from gantline.worker.handler import Handler

# What says who somebody is never goes into a job, whatever the route asks for.
_NEVER: Final = frozenset(
    {"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"}
)
_any_decoder: Final = msgspec.json.Decoder()
_object_decoder: Final = msgspec.json.Decoder(dict[str, Any])


class Capture:
    """Reads requests to one async endpoint into its payload."""

    def __init__(self, operation: Operation, handler: Handler, headers: Mapping[str, str]) -> None:
        """`headers` are the names of headers to take, each with the field that it becomes."""
        self.operation = operation
        self._handler = handler
        self._headers = {name.lower(): field for name, field in headers.items()}
        if refused := sorted(_NEVER & self._headers.keys()):
            raise InvalidInput(
                f"The header {refused[0]} may not be captured.",
                next_step="The job's owner is recorded as createdBy.",
            )
        for name, field in headers.items():
            if self._reads(field) is False:
                raise InvalidInput(
                    f"The header {name} would become {field}, which the payload of "
                    f"{handler.job_type!r} has not."
                )

    def _reads(self, field: str) -> bool:
        try:
            return self._handler.codec.from_text(field, [""]) is not None
        except InvalidPayload:
            return True

    async def read(self, call: Call, receive: Receive, *, limit: int) -> None:
        """Set `call.raw_body` to what was sent and `call.body` to the typed payload."""
        call.raw_body = await read_body(receive, call.headers, limit=limit)
        if call.raw_body:
            check_json(call.headers)
        captured = self._captured(call)
        try:
            call.body = self._handler.codec.decode(self._payload(call.raw_body, captured))
        except InvalidPayload as error:
            raise refused_for(error, within="#") from None
        call.is_read = True

    def _captured(self, call: Call) -> dict[str, Any]:
        captured: dict[str, Any] = {}
        for name, value in call.scope.get("path_params", {}).items():
            self._take(captured, name, [str(value)])
        texts: dict[str, list[str]] = {}
        for name, text in parameters(call.scope["query_string"]):
            texts.setdefault(name, []).append(text)
        for name, values in texts.items():
            if not self._take(captured, name, values):
                raise invalid_parameter(name, "is not known")
        for header, field in self._headers.items():
            if (given := call.headers.get(header)) is not None:
                self._take(captured, field, [given])
        return captured

    def _take(self, captured: dict[str, Any], name: str, texts: list[str]) -> bool:
        try:
            read = self._handler.codec.from_text(name, texts)
        except InvalidPayload as error:
            raise refused_for(error, within="#") from None
        if read is None:
            return False
        field, value = read
        if captured.setdefault(field, value) != value:
            raise _differs(field)
        return True

    def _payload(self, body: bytes, captured: dict[str, Any]) -> bytes:
        """The payload's JSON; without a body or captured values it is what an empty one is."""
        if not captured:
            if body:
                decode(_any_decoder, body)  # a malformed body is told apart from a wrong payload
            return body or (b"{}" if self._handler.codec.fields is not None else b"null")
        sent: dict[str, Any] = decode(_object_decoder, body) if body else {}
        for field, value in captured.items():
            if sent.setdefault(field, value) != value:
                raise _differs(field)
        return msgspec.json.encode(sent)


def _differs(field: str) -> Refused:
    detail = "is given twice, and differently"
    error = ErrorDetail(pointer=f"#/{field}", detail=detail)
    return Refused(Code.VALIDATION_ERROR, f"{field} {detail}.", errors=[error])
