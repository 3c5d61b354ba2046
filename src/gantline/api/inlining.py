"""JSON Schemas without references, for documents that have a place of their own for them."""

from collections.abc import Mapping
from typing import Any, Final

_DEEPEST: Final = 20


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Put what is referred to where it is referred to; a type within itself becomes anything."""
    resolved: dict[str, Any] = _resolve(schema, schema.get("$defs", {}), depth=0)
    return resolved


def _resolve(value: Any, definitions: Mapping[str, Any], *, depth: int) -> Any:
    if isinstance(value, list):
        return [_resolve(one, definitions, depth=depth) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "$ref" in value:
        if depth >= _DEEPEST:
            return {}
        name = value["$ref"].rsplit("/", 1)[-1]
        return _resolve(definitions.get(name, {}), definitions, depth=depth + 1)
    return {
        key: _resolve(one, definitions, depth=depth) for key, one in value.items() if key != "$defs"
    }
