"""A handler's signature: which arguments its jobs have, and what payload these are.

Parameters are arguments, but for the Context and what is provided. No argument is no payload; the
value of a single one is the payload; several are an object of their names.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_type_hints, overload

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.submission import SubmitOptions
from gantline.worker.context import Context

T = TypeVar("T")


class Dependency(msgspec.Struct, frozen=True):
    """Marks a keyword-only parameter of a handler whose value is provided for each run."""

    provider: Callable[..., Any]


@overload
def provide(provider: Callable[..., AsyncIterator[T]]) -> T: ...
@overload
def provide(provider: Callable[..., Iterator[T]]) -> T: ...
@overload
def provide(provider: Callable[..., Awaitable[T]]) -> T: ...
@overload
def provide(provider: Callable[..., T]) -> T: ...
def provide(provider: Callable[..., Any]) -> Any:
    """Give a handler's keyword-only parameter its value: `*, db: Database = provide(open_db)`.

    The provider may be a function or a generator that cleans up after its `yield`, plain or
    async, and may take the Context.
    """
    return Dependency(provider)


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler's signature says: which payload its arguments are, and which it is given."""

    name: str
    call: inspect.Signature
    """Of the job's arguments alone, without the Context and the dependencies."""
    names: tuple[str, ...]
    """Those of the arguments."""
    payload: Any
    """The type of the payload. Several arguments are the fields of a struct that is made here."""
    result: Any
    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    contexts: tuple[str, ...]
    """The parameters that take the Context."""
    dependencies: Mapping[str, Dependency]
    is_async: bool
    takes_payload: bool
    takes_several: bool

    def payload_of(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Make the payload of what the function would be called with; raise InvalidInput."""
        try:
            bound = self.call.bind(*args, **keywords)
        except TypeError as error:
            cause = f"{self.name} cannot be called with these arguments: {error}."
            next_step = f"It takes {self.call}."
            if options := SubmitOptions.__annotations__.keys() & keywords.keys() - {*self.names}:
                next_step += f" Options go before: .options({min(options)}=…).send(…)."
            raise InvalidInput(cause, next_step=next_step) from None
        bound.apply_defaults()
        if self.takes_several:
            return self.payload(**bound.arguments)
        return next(iter(bound.arguments.values()), None)

    def completed(self, payload: Any) -> Any:
        """Fill in the defaults where a payload is left out, or given by several names."""
        if payload is msgspec.UNSET:
            parameters = self.call.parameters.values()
            is_complete = all(one.default is not one.empty for one in parameters)
            return self.payload_of((), {}) if is_complete else None
        is_by_name = self.takes_several and isinstance(payload, Mapping)
        return self.payload_of((), payload) if is_by_name else payload

    def arguments(
        self, payload: Any, context: Any, provided: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the function is called with; `provided` are its dependencies."""
        if self.positional == self.names and not (self.keywords or self.takes_several):  # as most
            return (payload,) if self.names else (), provided
        given = dict.fromkeys(self.contexts, context)
        for name in self.names:
            given[name] = getattr(payload, name) if self.takes_several else payload
        keywords = {name: given[name] for name in self.keywords}
        return tuple(map(given.__getitem__, self.positional)), keywords | provided


def read_signature(function: Callable[..., Any]) -> Signature:
    """Read arguments, context and dependencies off a handler; refuse what could not be called."""
    hints = get_type_hints(function, include_extras=True)
    arguments: list[inspect.Parameter] = []
    dependencies: dict[str, Dependency] = {}
    names: dict[bool, list[str]] = {False: [], True: []}
    contexts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        name, default = parameter.name, parameter.default
        if (problem := _problem_of(parameter)) is not None:
            cause = f"{function.__qualname__} cannot be a handler: {problem[0]}."
            raise InvalidInput(cause, next_step=problem[1])
        if isinstance(default, Dependency):
            dependencies[name] = default
            continue
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        names[is_keyword].append(name)
        hint = hints.get(name, Any)
        if hint is Context or Context in get_args(hint):
            contexts.append(name)
        else:
            # People write `b: int = None`.
            hint = hint | None if default is None and hint is not Any else hint
            kind = parameter.KEYWORD_ONLY if is_keyword else parameter.POSITIONAL_OR_KEYWORD
            arguments.append(parameter.replace(annotation=hint, kind=kind))
    return Signature(
        name=function.__qualname__,
        call=inspect.Signature(arguments),
        names=tuple(one.name for one in arguments),
        payload=_payload_type(function, arguments),
        result=hints.get("return", Any),
        positional=tuple(names[False]),
        keywords=tuple(names[True]),
        contexts=tuple(contexts),
        dependencies=dependencies,
        is_async=inspect.iscoroutinefunction(function),
        takes_payload=bool(arguments),
        takes_several=len(arguments) > 1,
    )


def _problem_of(parameter: inspect.Parameter) -> tuple[str, str] | None:
    """Why a handler cannot have it, and what to do about it."""
    name, default = parameter.name, parameter.default
    if name == "self":
        return "it is a method, and no job has its object", "Make it a function."
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return f"a payload has no names for `{parameter}`", "Name each, or take a list or a dict."
    if isinstance(default, Dependency) and parameter.kind is not parameter.KEYWORD_ONLY:
        return f"{name} is provided, and positional", f"Make it keyword-only: `*, {name} = …`."
    if type(default).__hash__ is None:
        return f"its runs would share {parameter}", "Use None as the default, or `= provide(...)`."
    if name in ("ctx", "context") and parameter.annotation is parameter.empty:
        return f"{name} has no type", f"If it is the Context, write `{name}: Context`."
    return None


def _payload_type(function: Callable[..., Any], arguments: list[inspect.Parameter]) -> Any:
    if not arguments:
        return None
    if len(arguments) == 1:
        return arguments[0].annotation
    required = {inspect.Parameter.empty: msgspec.NODEFAULT}
    fields = [
        (one.name, one.annotation, required.get(one.default, one.default)) for one in arguments
    ]
    return msgspec.defstruct(function.__name__, fields, forbid_unknown_fields=True, kw_only=True)
