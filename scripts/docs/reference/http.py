"""The HTTP API, from docs/openapi.json."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.docs import markdown
from scripts.docs.markdown import code, table

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "openapi.json"
INTRODUCTION: Final = """\
Every operation, from [openapi.json](../openapi.json), which the server makes of what it serves.
How they are used is described in [the HTTP API](../http.md); who may use them, in [who may do
what](../authentication.md). Every problem is listed with its codes in [error codes](errors.md)."""

Node = Mapping[str, Any]


def page() -> str:
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    operations: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            texts_of_tag = operations.setdefault(operation["tags"][0], [])
            texts_of_tag.append(_operation(method.upper(), path, operation))
    parts = [INTRODUCTION]
    for tag, texts in operations.items():
        parts += [f"## {tag[0].upper()}{tag[1:]}", *texts]
    schemas = document["components"]["schemas"]
    parts += ["## Documents", *(_schema(name, schemas[name]) for name in sorted(schemas))]
    return markdown.page("The HTTP API", *parts)


def _operation(method: str, path: str, operation: Node) -> str:
    parts = [f"### `{method} {path}`", f"{operation['summary']} {_right(operation)}"]
    if parameters := list(_parameters(operation)):
        parts.append(table(["parameter", "in", "type", ""], parameters))
    if "requestBody" in operation:
        parts.append("Body: " + ", ".join(_contents(operation["requestBody"])) + ".")
    parts.append(table(["answer", "", ""], _answers(operation["responses"])))
    return "\n\n".join(parts)


def _right(operation: Node) -> str:
    """The same for all ways to authenticate."""
    rights = [name for scheme in operation["security"] for name, *_ in scheme.values()]
    return f"Needs `{rights[0]}`." if rights else "For everybody."


def _parameters(operation: Node) -> Iterator[list[str]]:
    for one in operation.get("parameters", ()):
        name = code(one["name"]) + (" (needed)" if one.get("required") else "")
        yield [name, one["in"], _type(one["schema"]), one.get("description", "")]


def _answers(responses: Node) -> Iterator[list[str]]:
    for status, answer in sorted(responses.items()):
        yield [status, answer["description"], ", ".join(_contents(answer))]


def _contents(holder: Node) -> Iterator[str]:
    for kind, content in holder.get("content", {}).items():
        if kind != "application/problem+json":
            yield _type(content["schema"]) if kind == "application/json" else code(kind)


def _schema(name: str, schema: Node) -> str:
    parts = [f"### {name}", schema.get("description", "")]
    if "enum" in schema:
        parts.append("One of " + ", ".join(code(one) for one in schema["enum"]) + ".")
    if properties := schema.get("properties"):
        needed = set(schema.get("required", ()))
        rows = (
            [code(field), _type(one), "yes" if field in needed else "", one.get("description", "")]
            for field, one in properties.items()
        )
        parts.append(table(["field", "type", "always there", ""], rows))
    return "\n\n".join(part for part in parts if part)


def _type(schema: Node) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        kinds = schema.get("anyOf") or schema.get("oneOf") or ()
        return " or ".join(dict.fromkeys(_type(one) for one in kinds))
    if "enum" in schema:
        return " or ".join(code(one) for one in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(schema.get("format", kind))
