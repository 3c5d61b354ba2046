"""What settings and declarations may be: held to their annotations and bounds where written.

A number where a timedelta is taken is seconds.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from difflib import get_close_matches
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import msgspec

from gantline.contract.errors import InvalidInput
from gantline.contract.text import LABEL_LIMIT, NAME_PATTERN

P = ParamSpec("P")
R = TypeVar("R")

NO_TIME: Final = timedelta(0)
SHORTEST: Final = timedelta(milliseconds=1)
"""For settings that must not be zero."""
LONGEST: Final = timedelta(days=36_500)

_WORDS: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    timedelta: "a timedelta or seconds",
    NoneType: "None",
}
_BOUNDS: Final = {"ge": "from", "gt": ">", "le": "to", "min_length": "of size", "max_length": "to"}
_ATTEMPTS: Final = ("max_attempts", "attempts", "max_retries", "retries")
"""What others call `retry`."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
# Larger ones are mistakes, and beyond 32 bits PostgreSQL claims nothing.
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Priority = Annotated[int, msgspec.Meta(ge=0, le=3)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LABEL_LIMIT, pattern=NAME_PATTERN)]


class _Checked(msgspec.StructMeta):
    """Refuses options that a group of settings has not, and says where the group is made."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        name, known = self.__name__, self.__struct_fields__
        try:
            check_names(name, known, options)
            return super().__call__(*args, **options)
        except TypeError as error:
            next_step = f"Give it {', '.join(known)}, each by its name."
            refused = InvalidInput(f"{name} cannot be made: {error}.", next_step=next_step)
            raise _named(refused) from None
        except InvalidInput as error:
            _named(error)
            raise


class CheckedStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, metaclass=_Checked):
    """Settings that are held to their annotations."""

    def __post_init__(self) -> None:
        for one in msgspec.structs.fields(self):
            value = held_as(one.name, getattr(self, one.name), one.type)
            msgspec.structs.force_setattr(self, one.name, value)


def declares(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Hold the options of each call to their annotations; an InvalidInput says where it is."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        hints = {k: v for k, v in inspect.get_annotations(function).items() if k != "return"}
        if "options" in hints:  # those of a TypedDict
            hints |= get_args(hints.pop("options"))[0].__annotations__

        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            try:
                return function(*args, **held(what, hints, options))
            except InvalidInput as error:
                _named(error)
                raise

        return call

    return decorate


def held(what: str, hints: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Give the options as their annotations have them; raise InvalidInput where one cannot be."""
    check_names(what, hints, options)
    return {name: held_as(name, value, hints[name]) for name, value in options.items()}


def held_as(name: str, value: Any, hint: Any) -> Any:
    """Give a value as an annotation has it; raise InvalidInput where it cannot be."""
    for kind, is_strict in _kinds(hint):
        if isinstance(value, str) and not is_strict:  # "30" may be anything
            continue
        try:
            found = msgspec.convert(value, kind, strict=is_strict)
            for one in found if isinstance(found, list) else [found]:
                check_span(name, one)
            return found
        except (msgspec.ValidationError, UnicodeError):
            continue
        except TypeError:  # nothing that msgspec knows
            if _looks_like(value, kind):
                return value
    raise InvalidInput(f"{name} is {value!r}.", next_step=f"It must be {_in_words(hint)}.")


def check_span(
    name: str, value: Any, *, least: timedelta = NO_TIME, most: timedelta = LONGEST
) -> None:
    """Raise InvalidInput where it is a timedelta out of its bounds."""
    if isinstance(value, timedelta) and not least <= value <= most:
        next_step = f"It must be from {_span(least)} to {_span(most)}."
        raise InvalidInput(f"{name} is {_span(value)}.", next_step=next_step)


def check_names(what: str, known: Collection[str], given: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an option that there is not, with the one that may be meant."""
    for name in given.keys() - set(known):
        alike = get_close_matches(name, known, n=1)
        next_step = f"Is {alike[0]!r} meant?" if alike else f"It has {', '.join(known)}."
        if name in _ATTEMPTS and "retry" in known:
            next_step = f"Is retry={given[name]!r} meant?"
        raise InvalidInput(f"{what} has no option {name!r}.", next_step=next_step)


@cache
def _kinds(hint: Any) -> list[tuple[Any, bool]]:
    """What a value may be, and whether strictly: not a timedelta, which a number becomes."""
    if isinstance(hint, str):  # of what is there for type checkers only
        return [(Any, True)]
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    ones = [kind for kind in kinds if kind is not float or timedelta not in kinds]
    return [(kind, "timedelta" not in str(kind)) for kind in ones]


def _looks_like(value: Any, kind: Any) -> bool:
    """Whether it is such a struct, or has what a protocol names. Else nobody knows."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return isinstance(value, kind)
    if not getattr(kind, "_is_protocol", False):
        return True
    members = [name for name in dir(kind) if not name.startswith("_")]
    return not isinstance(value, type) and all(hasattr(value, name) for name in members)


def _in_words(hint: Any) -> str:
    """What an annotation says, for people who do not read annotations."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [(word, getattr(args[1], name)) for name, word in _BOUNDS.items()]
        limits = [f" {word} {bound}" for word, bound in bounds if bound is not None]
        return _in_words(args[0]) + "".join(limits)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(kind) for kind, _ in _kinds(hint))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is Callable:
        return "a function"
    if origin in (Mapping, dict):
        return f"a dict, from {_in_words(args[0])} to {_in_words(args[1])}"
    if args:
        return f"a list, each {_in_words(args[0])}"
    return _WORDS.get(hint, hint.__name__)


def _span(span: timedelta) -> str:
    days = span / timedelta(days=1)
    return f"{days:g} days" if abs(days) >= 1 else f"{span.total_seconds():g} s"


def _named(error: InvalidInput) -> InvalidInput:
    """Have it say the file and the line of the call, unless that is Gantline's own."""
    caller = sys._getframe(2)
    if not caller.f_globals.get("__name__", "").startswith("gantline."):
        error.name_line(f"{caller.f_code.co_filename}:{caller.f_lineno}")
    return error
