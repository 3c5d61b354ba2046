"""The Python API, from signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final, get_type_hints, is_typeddict

import msgspec

import gantline
from gantline import api, auth, client, testing, webhooks
from gantline.integrations import fastapi, starlette
from scripts.docs import markdown
from scripts.docs.markdown import code, table
from scripts.docs.reference.settings import fields_of

INTRODUCTION: Final = """\
What most programs use: all names of `gantline`, then those of its other modules that
are meant for you. Everything is typed; `mypy --strict` knows the payload and the result of
every job."""

GROUPS: Final = (
    (
        "Declaring and submitting",
        (
            *("Gantline", "JobGroup", "JobOptions", "JobType", "Limit", "SubmitOptions"),
            *("Handle", "SyncHandle"),
        ),
    ),
    (
        "Settings",
        ("JobDefaults", "WorkerSettings", "StorageSettings", "Retention", "AuditSettings"),
    ),
    (
        "Within a handler",
        (
            *("Context", "current_job", "provide", "RunStopped"),
            *("Permanent", "Retry", "Snooze", "Throttled"),
        ),
    ),
    ("Retry strategies", ("Backoff", "Fixed", "Linear", "RetryTable")),
    ("Jobs and events", ("JobEvent", "DomainEvent", "JobStatus", "JobSnapshot", "JobStore")),
    (
        "Errors",
        (
            *("GantlineError", "InvalidInput", "SubmitConflict", "SubmitRefused", "QueueFull"),
            *("JobTypeDisabled", "StoreClosed", "StoreUnavailable", "JobNotFound"),
            *("JobNotCompleted", "JobFailed", "JobPoisoned", "JobCancelled"),
        ),
    ),
)
OTHERS: Final = (
    (fastapi, ("Accepted", "enqueue")),
    (starlette, ("Api", "AsyncEndpoint")),
    (api, api.__all__),
    (auth, auth.__all__),
    (client, client.__all__),
    (webhooks, webhooks.__all__),
    (testing, testing.__all__),
)
GIVEN: Final = (gantline.Context, gantline.Handle, gantline.JobType, starlette.Api)
"""What nobody makes himself: it is handed out."""
ATTRIBUTE: Final = re.compile(
    r'^        self\.([a-z]\w*)\b[^\n]*\n        """(.*?)"""', re.M | re.S
)
MODULES: Final = re.compile(
    r"\b(?:gantline|datetime|collections|typing|uuid|contextlib)(?:\.\w+)*\.(?=\w)"
)


def page() -> str:
    listed = {name for _, names in GROUPS for name in names}
    if missing := set(gantline.__all__) - listed - {"__version__"}:
        raise ValueError(f"scripts/docs/reference/python.py has no place for {sorted(missing)}")
    parts = [INTRODUCTION]
    for title, names in GROUPS:
        parts += [f"## {title}", *(_described(name, getattr(gantline, name)) for name in names)]
    for module, public in OTHERS:
        parts += [f"## From `{module.__name__}`", markdown.first_line(module.__doc__)]
        parts += [_described(name, getattr(module, name)) for name in public]
    return markdown.page("The Python API", *parts)


def _described(name: str, thing: Any) -> str:
    parts = [f"### {name}", _signature(name, thing), _doc(thing)]
    if inspect.isclass(thing):
        if issubclass(thing, Enum):
            parts.append("One of " + ", ".join(code(one.value) for one in thing) + ".")
        if issubclass(thing, msgspec.Struct) and thing.__struct_fields__:
            parts.append(table(["field", "default", ""], fields_of(thing)))
        if is_typeddict(thing):
            types = get_type_hints(thing).items()
            rows = [
                [code(one), code(_plain(inspect.formatannotation(kind)))] for one, kind in types
            ]
            parts.append(table(["option", "type"], rows))
        elif rows := list(_members(thing)):
            parts.append(table(["member", ""], rows))
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, thing: Any) -> str:
    """Of what is called with arguments of its own: the fields of a struct are in a table."""
    if inspect.isclass(thing) and (_is_data(thing) or thing in GIVEN or _is_protocol(thing)):
        return ""
    return f"```python\n{_laid_out(name, inspect.signature(thing))}\n```"


def _is_data(kind: type) -> bool:
    if issubclass(kind, BaseException):
        return "__init__" not in vars(kind)
    return is_typeddict(kind) or issubclass(kind, str | msgspec.Struct)


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _laid_out(name: str, signature: inspect.Signature) -> str:
    """As it would be written: a parameter a line where it is long."""
    parameters = list(_written(signature))
    returns = ""
    if signature.return_annotation not in (signature.empty, None):
        returns = f" -> {_plain(inspect.formatannotation(signature.return_annotation))}"
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) <= 90:
        return line
    return f"{name}(\n    " + ",\n    ".join(parameters) + f",\n){returns}"


def _written(signature: inspect.Signature) -> Iterator[str]:
    has_star = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not has_star:
            yield "*"
        has_star = has_star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        yield _plain(str(one))


def _plain(text: str) -> str:
    """Without the modules in front of names, and without quotes around them."""
    text = MODULES.sub("", text)
    text = re.sub(r"\*<class '(\w+)'>", r"Unpack[\1]", text)
    text = re.sub(r": '([^']+)'", r": \1", text)
    return re.sub(r"^'([^']+)'$", r"\1", text)


def _members(thing: type) -> Iterator[list[str]]:
    shown: set[str] = set()
    for owner in thing.__mro__:
        if owner.__module__.startswith("gantline"):
            for name, member in vars(owner).items():
                if not name.startswith("_") and name not in shown:
                    shown.add(name)
                    yield from _member(name, member)
            for name, doc in ATTRIBUTE.findall(inspect.getsource(owner)):
                yield [code(name), " ".join(doc.split())]


def _member(name: str, member: Any) -> Iterator[list[str]]:
    """A method without a docstring is not meant for users."""
    if isinstance(member, property) and member.fget is not None:
        kind = inspect.formatannotation(inspect.signature(member.fget).return_annotation)
        yield [code(name), " ".join(_doc(member.fget).split()) or f"A {code(_plain(kind))}."]
        return
    function = inspect.unwrap(getattr(member, "__func__", member))
    if inspect.isfunction(function) and _doc(function):
        yield [code(name + _parameters(function)), " ".join(_doc(function).split())]


def _parameters(function: Callable[..., Any]) -> str:
    names = []
    for one in list(inspect.signature(function).parameters.values())[1:]:
        stars = "**" if one.kind is one.VAR_KEYWORD else "*" * (one.kind is one.VAR_POSITIONAL)
        names.append(f"{stars}{one.name}" + ("=…" if one.kind is one.KEYWORD_ONLY else ""))
    return f"({', '.join(names)})"


def _doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""
