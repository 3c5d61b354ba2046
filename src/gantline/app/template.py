"""Templates for subjects and idempotency keys: `doc-{document_id}-v{row_version}`."""

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from gantline.contract.errors import InvalidInput

KeySource = str | Callable[[Any], str]


def compile_template(source: KeySource, fields: frozenset[str] | None) -> Callable[[Any], str]:
    """Turn a template, or a function, into a function of the payload; refuse unknown fields."""
    if callable(source):
        return source
    parts = _parse(source)
    names = [name for _, name in parts if name is not None]
    if fields is None and names:
        raise InvalidInput(
            f"The template {source!r} needs fields, but the payload's type declares none.",
            next_step="Give the payload a type, or pass a function instead of a template.",
        )
    if fields is not None and (unknown := [name for name in names if name not in fields]):
        raise InvalidInput(
            f"The template {source!r} names {', '.join(unknown)}, which the payload has not.",
            next_step=f"It has {', '.join(sorted(fields))}.",
        )
    if not names:
        constant = "".join(text for text, _ in parts)
        return lambda payload: constant
    return lambda payload: "".join(
        text if name is None else text + str(_value(payload, name)) for text, name in parts
    )


def _parse(source: str) -> list[tuple[str, str | None]]:
    """Only plain names: no attributes, indexes or formats, which could reach anywhere."""
    try:
        parts = list(Formatter().parse(source))
    except ValueError as error:
        raise InvalidInput(f"The template {source!r} cannot be read: {error}.") from None
    for _, name, format_, conversion in parts:
        if name is not None and (not name.isidentifier() or format_ or conversion):
            raise InvalidInput(f"The template {source!r} may use plain field names only.")
    return [(text, name) for text, name, _, _ in parts]


def _value(payload: Any, name: str) -> Any:
    return payload[name] if isinstance(payload, Mapping) else getattr(payload, name)
