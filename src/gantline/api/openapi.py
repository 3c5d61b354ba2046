"""The OpenAPI 3.1 document, made of the same operations and structs that serve the requests."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.routing import compile_path

from gantline.api.documents import AcceptedDocument, ProblemDocument, ResetDocument, StatusDocument
from gantline.api.operation import EventText, Html, Operation, RequestHeader
from gantline.api.problems import KINDS, ApiCode, Kind
from gantline.api.streams.identity import COOKIE, PARAMETER
from gantline.contract.codec import Codec
from gantline.contract.domain_event import ALL_DOMAIN_EVENTS, TYPE_PATTERN
from gantline.contract.errors import Code
from gantline.contract.job_event import CloudEvent, DomainDocument, OutcomeDocument
from gantline.contract.status import Event
from gantline.contract.version import __version__
from gantline.contract.webhook import EVENT_TYPES, StandardEvent
from gantline.schedules.schedule import NAME_PATTERN

_DEEPEST_REFERENCE: Final = 20
_REF: Final = "#/components/schemas/{name}"
_FOR_EVERY: Final = (
    ApiCode.INVALID_REQUEST,
    ApiCode.INTERNAL_ERROR,
    ApiCode.REQUEST_TIMEOUT,
    ApiCode.TOO_MANY_AT_ONCE,
    ApiCode.OVERLOADED,
)
_FOR_WHAT_IS_SENT: Final = (
    Code.INVALID_FORMAT,
    ApiCode.BODY_TIMEOUT,
    ApiCode.BODY_TOO_LARGE,
    ApiCode.UNSUPPORTED_MEDIA_TYPE,
    Code.VALIDATION_ERROR,
)
_FOR_THE_AUTHENTICATED: Final = (
    Code.UNAUTHENTICATED,
    Code.INVALID_CREDENTIALS,
    Code.FORBIDDEN,
    Code.RATE_LIMITED,
    Code.STORE_UNAVAILABLE,
    Code.IDENTITY_PROVIDER_UNAVAILABLE,
)
_DESCRIPTION: Final = (
    "Durable background jobs. A submit answers 202 with the URL of the job's status; every error "
    "is a problem (RFC 9457) with a stable errorCode and the correlationId of the request."
)
_STREAM_TOKENS: Final = {
    "streamToken": {
        "type": "apiKey",
        "in": "query",
        "name": PARAMETER,
        "description": "A stream token: short-lived, for one stream, only to read.",
    },
    "streamCookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The same token in the cookie that comes with it.",
    },
}
_EVENT_TYPES: Final = [event.value for event in Event]
_EVENT_NAMES: Final = ["state", "progress", *_EVENT_TYPES, "reset"]
_PATH_VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "jobId": {"type": "string", "format": "uuid"},
    "queue": {"type": "string", "minLength": 1, "maxLength": 128},
    "jobType": {"type": "string", "minLength": 1, "maxLength": 128},
    "webhookId": {"type": "string", "format": "uuid"},
    "deliveryId": {"type": "string", "format": "uuid"},
    "schedule": {"type": "string", "pattern": NAME_PATTERN},
    "problem": {"type": "string", "enum": [kind.slug for kind in KINDS.values()]},
}
_PATH_VALUE: Final = re.compile(r"\{(\w+)(?::path)?\}")
_STATUS_TEXT: Final = {
    200: "Done",
    201: "Made",
    202: "Accepted",
    204: "Done; there is nothing to say",
    304: "Nothing has changed",
}
_ANSWER_HEADERS: Final[Mapping[int, tuple[str, ...]]] = {
    201: ("Location",),
    202: ("Location", "Retry-After"),
}

_CORRELATION_ID: Final = RequestHeader(
    "X-Correlation-Id",
    "Comes back with the answer; made when it is not sent.",
    {"type": "string", "pattern": "^[A-Za-z0-9._:|/+=@~-]{1,128}$"},
)
_WEBHOOK_HEADERS: Final = {
    "webhook-id": "Of this message; the same whenever it is sent again.",
    "webhook-timestamp": "When it was sent, in seconds.",
    "webhook-signature": "One or more of `v1,` and the HMAC-SHA256 over id, timestamp and body, in "
    "base64.",
    "X-Gantline-Signature": "`sha256=` and the HMAC-SHA256 over the body, in hex; the prefix is "
    "the endpoint's.",
    "X-Gantline-Event-Type": "What happened.",
    "X-Gantline-Delivery-Id": "As webhook-id.",
}


def openapi_document(operations: Sequence[Operation]) -> dict[str, Any]:
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PATH_VALUE.sub(lambda match: "{" + _camel(match[1]) + "}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gantline", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "webhooks": {
            **{name: _webhook(name, OutcomeDocument, schemas) for name in EVENT_TYPES},
            ALL_DOMAIN_EVENTS: _webhook(ALL_DOMAIN_EVENTS, DomainDocument, schemas),
        },
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key or a JSON Web Token, as the server is set up.",
                },
                **_STREAM_TOKENS,
            },
        },
    }


class _Schemas:
    """The JSON Schemas of all structs, by reference."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types: list[Any] = [
            *(ProblemDocument, StatusDocument, ResetDocument, StandardEvent, CloudEvent),
            *(OutcomeDocument, DomainDocument),
        ]
        for operation in operations:
            shown = (operation.body_shown or operation.body, *operation.answers.values())
            types += [one for one in shown if _is_struct(one) and one not in types]
        made, self.components = msgspec.json.schema_components(types, ref_template=_REF)
        for schema in self.components.values():
            if text := schema.get("description"):
                schema["description"] = " ".join(text.split())
        self._made = dict(zip(types, made, strict=True))

    def of(self, type_: Any) -> dict[str, Any]:
        schema: dict[str, Any] = self._made.get(type_, {})
        return schema

    def carrying(self, envelope: Any, data: Any) -> dict[str, Any]:
        """An envelope whose `data` is this."""
        carried = {"type": "object", "properties": {"data": self.of(data)}}
        return {"allOf": [self.of(envelope), carried]}


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_path_values(operation), *_query(operation), *_headers(operation)],
        "responses": _responses(operation, schemas),
    }
    if operation.right is None:
        document["security"] = []
    else:
        schemes = ("bearer", *(_STREAM_TOKENS if operation.identify is not None else ()))
        document["security"] = [{name: [operation.right]} for name in schemes]
    if operation.body is not None:
        shown = operation.body_shown or operation.body
        content = {"application/json": {"schema": schemas.of(shown)}}
        document["requestBody"] = {"required": True, "content": content}
    return document


def _path_values(operation: Operation) -> list[dict[str, Any]]:
    names = [_camel(name) for name in _PATH_VALUE.findall(operation.path)]
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_VALUES[name]}
        for name in names
    ]


def _query(operation: Operation) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([operation.query], ref_template=_REF)
    properties = components[operation.query.__name__].get("properties", {})
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in properties.items()
    ]


def _headers(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": header.name,
            "in": "header",
            "required": False,
            "description": header.description,
            "schema": dict(header.schema),
        }
        for header in (_CORRELATION_ID, *operation.headers)
    ]


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    responses = {
        str(status): _answer(status, type_, schemas) for status, type_ in operation.answers.items()
    }
    for status, kinds in _problems(operation).items():
        codes = ", ".join(kind.code for kind in kinds)
        responses[str(status)] = {
            "description": f"{kinds[0].title}. {codes}",
            "content": {"application/problem+json": {"schema": schemas.of(ProblemDocument)}},
        }
    return dict(sorted(responses.items()))


def _answer(status: int, type_: Any, schemas: _Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": _STATUS_TEXT[status]}
    if type_ is Html:
        answer["content"] = {"text/html": {"schema": {"type": "string"}}}
    elif type_ is EventText:
        answer["content"] = {"text/event-stream": {"schema": _event(schemas)}}
    elif type_ is not None:
        answer["content"] = {"application/json": {"schema": schemas.of(type_)}}
    if names := _ANSWER_HEADERS.get(status):
        answer["headers"] = {name: {"schema": {"type": "string"}} for name in names}
    return answer


def _event(schemas: _Schemas) -> dict[str, Any]:
    """One event of a stream."""
    documents = [schemas.of(one) for one in (StatusDocument, ResetDocument, DomainDocument)]
    names = [{"enum": _EVENT_NAMES}, {"pattern": TYPE_PATTERN}]
    return {
        "type": "object",
        "description": "Server-sent events: `state` is where a job stands, `progress` that it went "
        "on, `reset` that events were missed that are not known any more; the others are what "
        "happened, and the domain events that handlers emitted, by their types.",
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{43}$"},
            "event": {"type": "string", "anyOf": names},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"anyOf": documents},
            },
        },
        "required": ["event", "data"],
    }


def _problems(operation: Operation) -> dict[int, list[Kind]]:
    codes = [*_FOR_EVERY, *operation.problems]
    if operation.body is not None:
        codes += _FOR_WHAT_IS_SENT
    if operation.right is not None:
        codes += _FOR_THE_AUTHENTICATED
    by_status: dict[int, list[Kind]] = {}
    for kind in (KINDS[code] for code in dict.fromkeys(codes)):
        by_status.setdefault(kind.status, []).append(kind)
    return by_status


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _webhook(name: str, data: type, schemas: _Schemas) -> dict[str, Any]:
    """The request that a webhook makes for a type of event; all but their data look the same."""
    request = {
        "operationId": f"on.{name.removesuffix('.*')}",
        "summary": f"Send {name} to an endpoint.",
        "tags": ["webhooks"],
        "security": [],
        "parameters": [
            {
                "name": header,
                "in": "header",
                "required": True,
                "description": text,
                "schema": {"type": "string"},
            }
            for header, text in _WEBHOOK_HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schemas.carrying(StandardEvent, data)},
                "application/cloudevents+json": {"schema": schemas.carrying(CloudEvent, data)},
            },
        },
        "responses": {
            "2XX": {"description": "It has been taken."},
            "410": {"description": "It wants nothing more: the endpoint is disabled."},
            "default": {
                "description": "408, 425, 429 and 5xx are tried again, as Retry-After says; "
                "anything else is given up. Redirects are not followed."
            },
        },
    }
    return {"post": request}


# -- an async endpoint, in the document of the user's own application -----------------------------


def endpoint_request(
    codec: Codec[Any], path: str, headers: Mapping[str, str], *, left_out: Collection[str]
) -> dict[str, Any]:
    """The parameters but `left_out`, and the body, which has not what the path gives."""
    payload = _inlined(codec.schema())
    fields = payload.get("properties", {})
    in_path = {name: codec.json_name(name) for name in compile_path(path)[2]}
    in_headers = {name: codec.json_name(field) for name, field in headers.items()}
    parameters = [
        {
            "name": name,
            "in": where,
            "required": where == "path",
            "schema": fields.get(field, {"type": "string"}),
        }
        for where, named in (("path", in_path), ("header", in_headers))
        for name, field in named.items()
        if name not in left_out
    ]
    document: dict[str, Any] = {"parameters": parameters} if parameters else {}
    if codec.fields is not None:
        schema = _without(payload, {*in_path.values()})
        document["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return document


def _without(schema: dict[str, Any], fields: set[str | None]) -> dict[str, Any]:
    kept = {name: one for name, one in schema.get("properties", {}).items() if name not in fields}
    required = [name for name in schema.get("required", []) if name not in fields]
    rest = {name: one for name, one in schema.items() if name != "required"}
    return {**rest, "properties": kept, **({"required": required} if required else {})}


def endpoint_answers() -> dict[int | str, dict[str, Any]]:
    """What an async endpoint answers."""
    return {
        200: _endpoint_answer("With `Prefer: wait` the job has ended.", StatusDocument),
        202: _endpoint_answer(
            "The job is accepted; ask for it at its statusUrl.", AcceptedDocument
        ),
        "4XX": _endpoint_answer(
            "Nothing was accepted.", ProblemDocument, "application/problem+json"
        ),
    }


def _endpoint_answer(text: str, kind: type, media_type: str = "application/json") -> dict[str, Any]:
    schema = _inlined(msgspec.json.schema(kind))
    return {"description": text, "content": {media_type: {"schema": schema}}}


def _inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Put what is referred to where it is referred to; a type within itself becomes anything.

    The document is another application's, which has a section of its own for references.
    """
    resolved: dict[str, Any] = _resolve(schema, schema.get("$defs", {}), depth=0)
    return resolved


def _resolve(value: Any, definitions: Mapping[str, Any], *, depth: int) -> Any:
    if isinstance(value, list):
        return [_resolve(one, definitions, depth=depth) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "$ref" in value:
        if depth >= _DEEPEST_REFERENCE:
            return {}
        name = value["$ref"].rsplit("/", 1)[-1]
        return _resolve(definitions.get(name, {}), definitions, depth=depth + 1)
    return {
        key: _resolve(one, definitions, depth=depth) for key, one in value.items() if key != "$defs"
    }
