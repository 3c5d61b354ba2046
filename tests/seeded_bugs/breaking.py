"""How a bug is put in: a text of the code is replaced by another, in place, and put back after.

Each way fails where the text is not there exactly once: a bug that is no longer there would not be
caught, or be caught for another reason.
"""

import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any
from unittest.mock import patch

import msgspec

from tests.seeded_bugs.bug import Breakage


def code(target: str, old: str, new: str, *more: tuple[str, str]) -> Breakage:
    """Replace a text in a function, named `module:function` or `module:Class.method`.

    Whoever has imported the function has the changed one. `more` are replaced in it as well.
    """

    @contextmanager
    def broken() -> Iterator[None]:
        function, source = find_function(target), source_of(target)
        for one, other in ((old, new), *more):
            source = _replaced(target, source, one, other)
        with _with_source(function, source):
            yield

    return broken


def whole(target: str, source: str) -> Breakage:
    """Replace a function by another source of the whole of it, decorators too."""

    @contextmanager
    def broken() -> Iterator[None]:
        with _with_source(find_function(target), source):
            yield

    return broken


def source_of(target: str) -> str:
    return textwrap.dedent(inspect.getsource(find_function(target)))


def text(target: str, old: str, new: str) -> Breakage:
    """Replace a text in a constant, named `module:NAME`: a statement, or a script of Redis."""

    @contextmanager
    def broken() -> Iterator[None]:
        module, name = target.split(":")
        before = getattr(import_module(module), name)
        after: Any
        if isinstance(before, str):
            after = _replaced(target, before, old, new)
        else:
            lua = _replaced(target, before.text, old, new)
            digest = hashlib.sha1(lua.encode(), usedforsecurity=False).hexdigest()
            after = msgspec.structs.replace(before, text=lua, digest=digest)
        yield from _with_value(before, after)

    return broken


def lua(script: str, old: str, new: str) -> Breakage:
    return text(f"gantline.stores.redis.scripts:{script}", old, new)


def sql_function(name: str, old: str, new: str) -> Breakage:
    """Replace a text in a function of the PostgreSQL schema; schemas that are made have it."""

    @contextmanager
    def broken() -> Iterator[None]:
        schema = import_module("gantline.stores.postgres.schema")
        load = schema.load_migrations

        def loaded(package: str) -> list[Any]:
            steps: list[Any] = load(package)
            with_it = [index for index, step in enumerate(steps) if _find_function(name, step.sql)]
            assert with_it, f"there is no function {name}"
            last = steps[with_it[-1]]
            steps[with_it[-1]] = last._replace(sql=_in_function(name, last.sql, old, new))
            return steps

        loaded(schema.PACKAGE)
        with patch.object(schema, "load_migrations", loaded):
            yield

    return broken


def _find_function(name: str, sql: str) -> re.Match[str] | None:
    start = rf"CREATE (?:OR REPLACE )?FUNCTION gantline\.{name}\("
    return re.search(rf"{start}.*?\n\$\$;", sql, re.DOTALL)


def _in_function(name: str, sql: str, old: str, new: str) -> str:
    found = _find_function(name, sql)
    assert found is not None, f"there is no function {name}"
    changed = _replaced(name, found[0], old, new)
    return sql[: found.start()] + changed + sql[found.end() :]


def _replaced(where: str, source: str, old: str, new: str) -> str:
    count = source.count(old)
    assert count == 1, f"{where} has {count} times {old!r}"
    return source.replace(old, new)


def find_function(target: str) -> FunctionType:
    module, path = target.split(":")
    found: Any = import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType)
    return found


@contextmanager
def _with_source(function: FunctionType, source: str) -> Iterator[None]:
    before = function.__code__
    function.__code__ = _recompiled(function, source)
    try:
        yield
    finally:
        function.__code__ = before


def _recompiled(function: FunctionType, source: str) -> CodeType:
    if "__class__" in function.__code__.co_freevars:
        source = "class _:\n" + textwrap.indent(source, "    ")
    name, file = function.__name__, function.__code__.co_filename
    return next(_codes_named(name, compile(source, file, "exec", dont_inherit=True)))


def _codes_named(name: str, code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == name:
                yield constant
            yield from _codes_named(name, constant)


def _with_value(before: Any, after: Any) -> Iterator[None]:
    """Where a module has the one, it has the other for as long as this generator waits."""
    modules = [one for name, one in list(sys.modules.items()) if name.startswith("gantline")]
    places = [
        (module, name)
        for module in modules
        for name, value in list(vars(module).items())
        if value is before
    ]
    for module, name in places:
        setattr(module, name, after)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, before)
