"""An async endpoint as the OpenAPI document of the user's own application tells of it."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from starlette.routing import compile_path

from gantline.api.documents import AcceptedDocument, ProblemDocument, StatusDocument
from gantline.api.inlining import inlined
from gantline.contract.codec import Codec

_TEXT: Final = {"type": "string"}


def request_document(
    codec: Codec[Any], path: str, headers: Mapping[str, str], *, told: Collection[str]
) -> dict[str, Any]:
    """Its parameters and its body, which has not what the path gives; `told` are told already."""
    payload = inlined(codec.schema())
    fields = payload.get("properties", {})
    in_path = {name: codec.json_name(name) for name in compile_path(path)[2]}
    in_headers = {name: codec.json_name(field) for name, field in headers.items()}
    parameters = [
        {
            "name": name,
            "in": where,
            "required": where == "path",
            "schema": fields.get(field, _TEXT),
        }
        for where, named in (("path", in_path), ("header", in_headers))
        for name, field in named.items()
        if name not in told
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


def answers_document() -> dict[int | str, dict[str, Any]]:
    """What it answers."""
    return {
        200: _answer("With `Prefer: wait` the job has ended.", StatusDocument),
        202: _answer("The job is accepted; ask for it at its statusUrl.", AcceptedDocument),
        "4XX": _answer("Nothing was accepted.", ProblemDocument, "application/problem+json"),
    }


def _answer(text: str, kind: type, media_type: str = "application/json") -> dict[str, Any]:
    schema = inlined(msgspec.json.schema(kind))
    return {"description": text, "content": {media_type: {"schema": schema}}}
