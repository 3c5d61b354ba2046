"""What a mutant changes: the operators of mutmut, and slips that it does not make.

mutmut runs tests in processes of its own and knows no rules of ours; its operators are plain
functions from one node to others, so those are all that is taken from it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import libcst as cst
from mutmut.mutation.mutators import mutation_operators

Operator = Callable[[Any], Iterable[cst.CSTNode]]

_OTHER_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


def operator_negated_condition(node: cst.If | cst.While | cst.CompIf) -> Iterable[cst.CSTNode]:
    test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def operator_dropped_call(node: cst.Expr) -> Iterable[cst.CSTNode]:
    """A statement that is a call is left out."""
    if isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


def operator_returned_none(node: cst.Return) -> Iterable[cst.CSTNode]:
    if node.value is not None and not _is_name(node.value, "None"):
        yield node.with_changes(value=cst.Name("None"))


def operator_other_name(node: cst.Name) -> Iterable[cst.CSTNode]:
    if node.value in _OTHER_NAMES:
        yield node.with_changes(value=_OTHER_NAMES[node.value])


def operator_number_below(node: cst.Integer) -> Iterable[cst.CSTNode]:
    """mutmut makes the number above."""
    if node.evaluated_value > 0:
        yield node.with_changes(value=str(node.evaluated_value - 1))


def operator_swapped_arguments(node: cst.Call) -> Iterable[cst.CSTNode]:
    """The first two by position."""
    if isinstance(node.func, cst.Name) and node.func.value in ("min", "max"):
        return  # which is the first does not matter
    by_position = [arg for arg in node.args if arg.keyword is None and not arg.star]
    if len(by_position) >= 2 and list(node.args[:2]) == by_position[:2]:
        first, second = node.args[:2]
        swapped = (first.with_changes(value=second.value), second.with_changes(value=first.value))
        yield node.with_changes(args=[*swapped, *node.args[2:]])


def _is_name(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


OPERATORS: Final[tuple[tuple[type | tuple[type, ...], Operator], ...]] = (
    *mutation_operators,
    ((cst.If, cst.While, cst.CompIf), operator_negated_condition),
    (cst.Expr, operator_dropped_call),
    (cst.Return, operator_returned_none),
    (cst.Name, operator_other_name),
    (cst.Integer, operator_number_below),
    (cst.Call, operator_swapped_arguments),
)
