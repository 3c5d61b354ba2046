"""`python -m benchmarks calls [BASE]`: how long is the path of one job, in calls and files?"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from benchmarks.hot_path.figures import (
    BULK_CPU,
    DRAIN_CPU,
    PARTS,
    SINGLE_CPU,
    UNITS,
    Figures,
    best_of,
)
from benchmarks.hot_path.json_watch import Crossing
from benchmarks.hot_path.recorder import Step, files_of, returns_of
from benchmarks.hot_path.trees import THIS, Tree, answer_to, revision, tree_of
from benchmarks.report import aligned, figure
from benchmarks.stores import remove_database

_CALLS: Final = "benchmarks.hot_path.calls_child"
_SPEED: Final = "benchmarks.hot_path.speed_child"
_CPU: Final = (SINGLE_CPU, BULK_CPU, DRAIN_CPU)
_CPU_TURNS: Final = 5


class Operation(msgspec.Struct, frozen=True):
    """What it called, and where its payload crossed JSON."""

    steps: list[Step]
    crossings: list[Crossing]

    def figures(self) -> dict[str, int]:
        return {
            "calls of functions of gantline": len(self.steps),
            "files of these functions": files_of(self.steps),
            "returns to a file that was left": returns_of(self.steps),
            "payload through JSON": len(self.crossings),
        }


Operations = dict[str, Operation]


def main(words: Sequence[str]) -> int:
    options = _options(words)
    with TemporaryDirectory(prefix="gantline-calls-") as name, ExitStack() as stack:
        folder = Path(name)
        trees = [THIS]
        if options.base:
            trees.append(stack.enter_context(tree_of(options.base, folder)))
        paths = {tree.name: _operations(tree, folder) for tree in trees}
        costs = _cpu(trees, folder)
    if options.show:
        for name, operations in paths.items():
            print("\n".join(_listed(name, operations)))
    print(table(paths, costs))
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks calls",
        description="Count the calls of one submit, one run and one GET of a job on SQLite, and "
        "measure the CPU of a submit and of a job.",
    )
    parser.add_argument(
        "base",
        metavar="BASE",
        nargs="?",
        type=revision,
        help="a revision that git knows, to be told beside this tree",
    )
    parser.add_argument("--show", action="store_true", help="list every call, with its file")
    return parser.parse_args(words)


def _operations(tree: Tree, folder: Path) -> Operations:
    path = folder / "calls.db"
    try:
        with tree.started(_CALLS, str(path)) as child:
            return msgspec.convert(answer_to(child), Operations)
    finally:
        remove_database(path)


def _cpu(trees: Sequence[Tree], folder: Path) -> dict[str, Figures]:
    """Measured in processes without a recorder, in turns."""
    with ExitStack() as stack:
        children = {}
        for number, tree in enumerate(trees):
            path = folder / f"speed-{number}.db"
            stack.callback(remove_database, path)
            children[tree.name] = stack.enter_context(tree.started(_SPEED, f"sqlite:///{path}"))
        turns: dict[str, list[Figures]] = {name: [] for name in children}
        for _ in range(_CPU_TURNS):
            for name, child in children.items():
                answers = [answer_to(child, part) for part in PARTS]
                turns[name].append({what: cost for each in answers for what, cost in each.items()})
    return {name: best_of(some) for name, some in turns.items()}


# -- telling ---------------------------------------------------------------------------------------


def table(paths: dict[str, Operations], costs: dict[str, Figures]) -> str:
    """A column for each tree."""
    first = next(iter(paths.values()))
    body = [
        (what, name, *(str(operations[what].figures()[name]) for operations in paths.values()))
        for what, operation in first.items()
        for name in operation.figures()
    ]
    body += [
        ("CPU on SQLite", f"{what} ({UNITS[what]})", *(figure(one[what]) for one in costs.values()))
        for what in _CPU
    ]
    columns = range(2, 2 + len(paths))
    return aligned(("operation", "figure", *paths), body, numbers=set(columns))


def _listed(tree: str, operations: Operations) -> Iterator[str]:
    for what, operation in operations.items():
        yield f"{what}, {tree}"
        yield from (f"  {step.file}  {step.function}" for step in operation.steps)
        for crossing in operation.crossings:
            yield f"  JSON: {crossing.call} by {crossing.function} in {crossing.file}"
        yield ""
