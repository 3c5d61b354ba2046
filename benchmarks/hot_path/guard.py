"""`python -m benchmarks guard BASE`: is this tree slower than another revision on any store?"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.contest.children import Child, ChildFailed
from benchmarks.hot_path.figures import PARTS, UNITS, Compared, Figures, best_of, compared
from benchmarks.hot_path.trees import THIS, Tree, answer_to, revision, tree_of
from benchmarks.postgres.server import Server
from benchmarks.report import aligned, figure
from benchmarks.stores import remove_database
from tests.servers.missing import ServerMissing
from tests.servers.redis import RedisServer

_CHILD: Final = "benchmarks.hot_path.speed_child"
_PAIRS: Final = 5
_FEWEST_PAIRS: Final = 3
_TURNS: Final = 3

Emptied = Callable[[str], AbstractContextManager[str]]
"""Makes an empty store of this name; gives its URL, and removes it afterwards."""


def main(words: Sequence[str]) -> int:
    """Give 1 if this tree is slower, 2 if that cannot be told, else 0."""
    options = _options(words)
    try:
        found = _found(options)
    except ChildFailed as failure:
        _say(str(failure))
        return 2
    if not found:
        _say("nothing was measured")
        return 2
    print(table(found, base=options.base))
    print(summary(found, base=options.base))
    return int(any(one.verdict == "slower" for one in found))


def _found(options: argparse.Namespace) -> list[Compared]:
    found: list[Compared] = []
    with (
        TemporaryDirectory(prefix="gantline-guard-") as folder,
        tree_of(options.base, Path(folder)) as base,
    ):
        for engine in options.store or STORES:
            try:
                with STORES[engine](Path(folder)) as emptied:
                    found += _measured(engine, emptied, base, options.pairs)
            except ServerMissing as missing:
                _say(f"{engine} is left out: {missing}")
    return found


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks guard",
        description="Measure this tree beside another revision, in turns, on every store. "
        "The exit code is 1 if it is slower, 2 if that cannot be told.",
    )
    parser.add_argument("base", metavar="BASE", type=revision, help="any revision that git knows")
    parser.add_argument(
        "--pairs",
        type=_pairs,
        default=_PAIRS,
        metavar="N",
        help=f"how many pairs of processes take turns on each store ({_PAIRS}); where a "
        "figure seems to differ then, as many again",
    )
    parser.add_argument(
        "--store",
        action="append",
        choices=list(STORES),
        help="measure on this one only; may be given more than once",
    )
    return parser.parse_args(words)


def _pairs(text: str) -> int:
    if not text.isdecimal() or int(text) < _FEWEST_PAIRS:
        raise argparse.ArgumentTypeError(f"{text} is not a number from {_FEWEST_PAIRS} on")
    return int(text)


# -- measuring -------------------------------------------------------------------------------------


def _measured(engine: str, emptied: Emptied, base: Tree, pairs: int) -> list[Compared]:
    """A busy machine makes one figure in some dozens look slower or faster, so where one does, all
    is measured again: twice as many pairs must agree."""
    taken = [_pair(engine, emptied, base, number) for number in range(pairs)]
    if suspects := [one for one in compared(engine, taken) if one.verdict]:
        named = ", ".join(f"{one.name} ({one.verdict})" for one in suspects)
        _say(f"{engine}: there may be a difference, so all is measured again: {named}")
        taken += [_pair(engine, emptied, base, number) for number in range(pairs, 2 * pairs)]
    return compared(engine, taken)


def _pair(engine: str, emptied: Emptied, base: Tree, number: int) -> tuple[Figures, Figures]:
    """Two processes that take turns: each part of one right beside that of the other."""
    start = time.monotonic()
    with (
        emptied("this") as this_url,
        emptied("base") as base_url,
        THIS.started(_CHILD, this_url) as this,
        base.started(_CHILD, base_url) as other,
    ):
        # Who is first changes every time, for whoever is second finds a warmer machine.
        orders = cycle(((this, other), (other, this)))
        if number % 2:
            next(orders)
        turns: dict[Child, list[Figures]] = {this: [], other: []}
        for _ in range(_TURNS):
            turn: dict[Child, Figures] = {this: {}, other: {}}
            for part, order in zip(PARTS, orders, strict=False):
                for child in order:
                    turn[child] |= answer_to(child, part)
            for child, figures in turn.items():
                turns[child].append(figures)
    _say(f"{engine}, pair {number + 1}: {time.monotonic() - start:.0f} s")
    return best_of(turns[this]), best_of(turns[other])


# -- stores ----------------------------------------------------------------------------------------


@contextmanager
def _memory(folder: Path) -> Iterator[Emptied]:
    yield lambda name: nullcontext("memory://")


@contextmanager
def _sqlite(folder: Path) -> Iterator[Emptied]:
    @contextmanager
    def emptied(name: str) -> Iterator[str]:
        path = folder / f"{name}.db"
        try:
            yield f"sqlite:///{path}"
        finally:
            remove_database(path)

    yield emptied


@contextmanager
def _postgres(folder: Path) -> Iterator[Emptied]:
    """Each tree makes its own tables: they may differ."""
    server = Server()
    try:
        server.make("empty")
        yield lambda name: server.copied("empty", name)
    finally:
        server.stop()


@contextmanager
def _redis(folder: Path) -> Iterator[Emptied]:
    """One server for each tree: their keys and channels have the same names."""
    servers: dict[str, RedisServer] = {}

    @contextmanager
    def emptied(name: str) -> Iterator[str]:
        servers[name].call("FLUSHALL")
        yield servers[name].url()

    try:
        for name in ("this", "base"):
            servers[name] = RedisServer()
        yield emptied
    finally:
        for server in servers.values():
            server.stop()


STORES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Emptied]]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "redis": _redis,
}


# -- telling ---------------------------------------------------------------------------------------


def table(found: Sequence[Compared], *, base: str) -> str:
    """The medians of both, and how fast this tree is, times the other: under 1 is slower."""
    head = ("store", "figure", "this tree", base, "unit", "speed", "min - max", "pairs", "")
    body = [
        (
            one.engine,
            one.name,
            figure(median(one.this)),
            figure(median(one.base)),
            UNITS[one.name],
            f"{median(one.speeds):.2f}",
            f"{min(one.speeds):.2f} - {max(one.speeds):.2f}",
            str(len(one.speeds)),
            one.verdict,
        )
        for one in found
    ]
    return aligned(head, body, numbers={2, 3, 5, 7})


def summary(found: Sequence[Compared], *, base: str) -> str:
    """What it all means, in a line or two."""
    lines = [
        f"{verdict} than {base}: {', '.join(f'{one.name} ({one.engine})' for one in some)}"
        for verdict in ("slower", "faster")
        if (some := [one for one in found if one.verdict == verdict])
    ]
    return "\n".join(lines) or f"no difference to {base}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
