"""Generated mutants of a function: each change that an operator makes somewhere in its body."""

import ast
import difflib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from tests.mutants.operators import OPERATORS
from tests.seeded_bugs.breaking import source_of


class Generated(NamedTuple):
    """`name` is the operator and, since one changes many things, a number."""

    name: str
    change: str
    source: str


def generate(target: str) -> Iterator[Generated]:
    """Make the mutants of a function, named `module:function` or `module:Class.method`."""
    source = source_of(target)
    module = cst.parse_module(source)
    (function,) = module.body
    assert isinstance(function, cst.FunctionDef)
    numbers = Counter[str]()
    seen = {_meaning_of(source)}
    for node in _nodes_of(function.body):
        for kinds, operator in OPERATORS:
            if not isinstance(node, kinds):
                continue
            for changed in operator(node):
                if _fails_anywhere(node, changed):
                    continue
                mutated = _replace(module, node, changed)
                meaning = _meaning_of(mutated)
                if meaning is None or meaning in seen:
                    continue
                seen.add(meaning)
                name = operator.__name__.removeprefix("operator_")
                numbers[name] += 1
                yield Generated(f"{name} {numbers[name]}", _difference(source, mutated), mutated)


def _nodes_of(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What may be changed, in the order in which it is written."""
    if isinstance(node, cst.Annotation) or _is_prose(node) or _is_unreachable(node):
        return
    yield node
    for child in node.children:
        yield from _nodes_of(child)


def _is_prose(node: cst.CSTNode) -> bool:
    """A text with a space is for people: a docstring, or a message that may be worded anew."""
    return isinstance(node, cst.SimpleString) and " " in node.value


def _is_unreachable(node: cst.CSTNode) -> bool:
    call = node.value if isinstance(node, cst.Expr) else None
    return isinstance(call, cst.Call) and _is_call_of(call, "assert_never")


def _is_call_of(call: cst.Call, *names: str) -> bool:
    return isinstance(call.func, cst.Name) and call.func.value in names


def _fails_anywhere(node: cst.CSTNode, changed: cst.CSTNode) -> bool:
    """A call that lacks a positional argument, or asks for the length of None, proves nothing."""
    if not isinstance(node, cst.Call) or not isinstance(changed, cst.Call):
        return False
    is_plain = _is_call_of(node, "len", "isinstance")
    return is_plain or _count_by_position(changed) < _count_by_position(node)


def _count_by_position(call: cst.Call) -> int:
    return sum(arg.keyword is None for arg in call.args)


def _replace(module: cst.Module, node: cst.CSTNode, changed: cst.CSTNode) -> str:
    replaced = module.deep_replace(node, changed)
    assert isinstance(replaced, cst.Module)
    return replaced.code


def _meaning_of(source: str) -> str | None:
    """What tells two sources apart; None for what is no Python."""
    try:
        return ast.dump(_Unreachable().visit(ast.parse(source)))
    except SyntaxError:
        return None


class _Unreachable(ast.NodeTransformer):
    """Leaves out the last case of a match, where it only asserts that it is never reached."""

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.cases = [case for case in node.cases if "assert_never" not in ast.dump(case.body[0])]
        return self.generic_visit(node)


def _difference(before: str, after: str) -> str:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    parts: dict[str, list[str]] = {"-": [], "+": []}
    for line in lines:
        if line[:1] in parts:
            parts[line[0]].append(line[2:].strip())
    return " ".join(parts["-"]) + "  ->  " + " ".join(parts["+"])
