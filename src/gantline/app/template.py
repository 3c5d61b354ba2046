"""Templates for subjects, groups and idempotency keys: `doc-{document_id}-v{row_version}`."""

from collections.abc import Callable, Mapping
from functools import partial
from string import Formatter
from typing import Any

from gantline.contract.errors import InvalidInput

KeySource = str | Callable[[Any], str]


def compile_template(source: KeySource, fields: frozenset[str] | None) -> Callable[[Any], str]:
    """Turn a template, or a function, into a function of the payload; refuse unknown fields."""
    if callable(source):
        return partial(_text_of, source)
    parts = _parse(source)
    names = [name for _, name in parts if name is not None]
    if unknown := [name for name in names if name not in (fields or ())]:
        next_step = "Give the payload a type with fields, or pass a function."
        raise InvalidInput(
            f"The template {source!r} names {', '.join(unknown)}, which the payload has not.",
            next_step=f"It has {', '.join(sorted(fields))}." if fields else next_step,
        )
    if not names:
        constant = "".join(text for text, _ in parts)
        return lambda payload: constant
    return lambda payload: "".join(
        text if name is None else text + str(_value(payload, name)) for text, name in parts
    )


def compile_group(source: KeySource, fields: frozenset[str] | None) -> Callable[[Any], str] | None:
    """The same for a group, which one text for all jobs of a type would not be; None for none."""
    if not source:
        return None
    if isinstance(source, str) and not any(name for _, name in _parse(source)):
        raise InvalidInput(
            f"The group {source!r} names no field, so all jobs of the type would be one group.",
            next_step='Name one: group="{account_id}"; or limit the type: Limit(…, per="type").',
        )
    return compile_template(source, fields)


def _text_of(function: Callable[[Any], Any], payload: Any) -> str:
    text = function(payload)
    if not isinstance(text, str):
        name = getattr(function, "__qualname__", repr(function))
        cause = (
            f"{name} returned {type(text).__name__}, as a job's subject, group or idempotency key."
        )
        raise InvalidInput(cause, next_step="Return text.")
    return text


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
