"""The Python API, from signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

import windlass
from scripts.docs import markdown
from scripts.docs.markdown import code, table
from scripts.docs.reference.settings import fields_of
from windlass.client import AsyncClient, Client
from windlass.integrations import fastapi, starlette
from windlass.testing.clock import FakeClock
from windlass.testing.kit import JobsTest
from windlass.webhooks import verify

INTRODUCTION: Final = """\
What most programs use: all names of `windlass`, and behind them those of its other modules that are meant
for you. Everything is typed; `mypy --strict` knows the payload and the result of every job."""

GROUPS: Final = (
    ("Declaring and submitting", ("Windlass", "JobGroup", "JobType", "Handle", "Require")),
    ("Within a handler", ("Context", "current_job", "provide", "Permanent", "Retry", "Snooze")),
    ("Retry strategies", ("Backoff", "Fixed", "Linear", "Table")),
    ("Workers and events", ("WorkerSettings", "JobEvent", "JobStatus")),
    (
        "Errors",
        (
            *("WindlassError", "InvalidInput", "SubmitConflict", "QueueFull"),
            *("JobFailed", "JobPoisoned", "JobCancelled"),
        ),
    ),
)
OTHERS: Final = (
    ("windlass.integrations.fastapi", (fastapi.Accepted, fastapi.enqueue)),
    ("windlass.integrations.starlette", tuple(getattr(starlette, name) for name in starlette.__all__)),
    ("windlass.client", (Client, AsyncClient)),
    ("windlass.webhooks", (verify,)),
    ("windlass.testing.kit", (JobsTest,)),
    ("windlass.testing.clock", (FakeClock,)),
)


def page() -> str:
    listed = {name for _, names in GROUPS for name in names}
    if missing := set(windlass.__all__) - listed - {"__version__"}:
        raise ValueError(f"scripts/docs/reference/python.py has no place for {sorted(missing)}")
    parts = [INTRODUCTION]
    for title, names in GROUPS:
        parts += [f"## {title}", *(_told(name, getattr(windlass, name)) for name in names)]
    parts.append("## Other modules")
    for module, things in OTHERS:
        parts += [f"From `{module}`:", *(_told(thing.__name__, thing) for thing in things)]
    return markdown.page("The Python API", *parts)


def _told(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return "\n\n".join([f"### {name}", _signature(name, thing), _doc(thing)])
    parts = [f"### {name}", _signature(name, thing), _doc(thing)]
    if issubclass(thing, msgspec.Struct) and thing.__struct_fields__:
        parts.append(table(["field", "default", ""], fields_of(thing)))
    if rows := list(_members(thing)):
        parts.append(table(["member", ""], rows))
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, thing: Callable[..., Any]) -> str:
    if inspect.isclass(thing) and (issubclass(thing, Exception) and "__init__" not in vars(thing)):
        return ""
    if inspect.isclass(thing) and (issubclass(thing, str) or issubclass(thing, msgspec.Struct)):
        return ""
    try:
        told = inspect.signature(thing)
    except ValueError:
        return ""
    return f"```python\n{_laid_out(name, told)}\n```"


def _laid_out(name: str, told: inspect.Signature) -> str:
    """As it would be written: a parameter a line where it is long."""
    parameters, is_keyword = [], False
    for one in told.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            parameters.append("*")
        is_keyword = is_keyword or one.kind is one.VAR_POSITIONAL
        parameters.append(_plain(str(one)))
    returns = "" if told.return_annotation in (told.empty, None) else f" -> {_plain(str(inspect.formatannotation(told.return_annotation)))}"
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) <= 90:
        return line
    return f"{name}(\n    " + ",\n    ".join(parameters) + f",\n){returns}"


def _plain(text: str) -> str:
    """Without the modules in front of names, and without quotes around them."""
    text = re.sub(r"\b(?:windlass|datetime|collections|typing|uuid|contextlib)(?:\.\w+)*\.(?=\w)", "", text)
    text = re.sub(r": '([^']+)'", r": \1", text)
    return re.sub(r"^'([^']+)'$", r"\1", text)


def _members(thing: type) -> Iterator[list[str]]:
    shown: set[str] = set()
    for owner in thing.__mro__:
        if not owner.__module__.startswith("windlass"):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in shown:
                continue
            shown.add(name)
            function = member.fget if isinstance(member, property) else inspect.unwrap(getattr(member, "__func__", member))
            doc = inspect.getdoc(function) if inspect.isfunction(function) else None
            if doc:
                call = "" if isinstance(member, property) else _parameters(function)
                yield [code(name + call), " ".join(doc.split())]


def _parameters(function: Callable[..., Any]) -> str:
    names = []
    for one in list(inspect.signature(function).parameters.values())[1:]:
        mark = {one.VAR_KEYWORD: "**", one.VAR_POSITIONAL: "*"}.get(one.kind, "")
        names.append(f"{mark}{one.name}" + ("=…" if one.kind is one.KEYWORD_ONLY else ""))
    return f"({', '.join(names)})"


def _doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""
