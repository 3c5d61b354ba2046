"""`python -m benchmarks guard BASE`: is this tree slower than another revision on any store?"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.hot_path.figures import UNITS, Compared, Figures, compared
from benchmarks.hot_path.trees import THIS, Tree, revision, tree_of
from benchmarks.postgres.server import Server
from benchmarks.report import aligned, figure
from benchmarks.stores import remove_database
from tests.servers.missing import ServerMissing
from tests.servers.redis import RedisServer

_CHILD: Final = "benchmarks.hot_path.speed_child"
_ROUNDS: Final = 5
_FEWEST_ROUNDS: Final = 3

Emptied = Callable[[], AbstractContextManager[str]]
"""Makes an empty store by its URL, which is removed afterwards."""


def main(words: Sequence[str]) -> int:
    """Give 1 if this tree is slower, else 0."""
    options = _options(words)
    found: list[Compared] = []
    with (
        TemporaryDirectory(prefix="gantline-guard-") as folder,
        tree_of(options.base, Path(folder)) as base,
    ):
        for engine, opened in STORES.items():
            try:
                with opened(Path(folder)) as emptied:
                    found += _measured(engine, emptied, base, options.rounds)
            except ServerMissing as missing:
                _say(f"{engine} is left out: {missing}")
    print(table(found, base=options.base))
    print(summary(found, base=options.base))
    return int(any(one.verdict == "slower" for one in found))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks guard",
        description="Measure this tree beside another revision, in turns, on every store. "
        "The exit code is 1 if it is slower.",
    )
    parser.add_argument("base", metavar="BASE", type=revision, help="any revision that git knows")
    parser.add_argument(
        "--rounds",
        type=_rounds,
        default=_ROUNDS,
        metavar="N",
        help=f"how often both are measured on each store ({_ROUNDS}); what seems slower then is "
        "measured as often again",
    )
    return parser.parse_args(words)


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < _FEWEST_ROUNDS:
        raise argparse.ArgumentTypeError(f"{text} is not a number from {_FEWEST_ROUNDS} on")
    return int(text)


# -- measuring -------------------------------------------------------------------------------------


def _measured(engine: str, emptied: Emptied, base: Tree, rounds: int) -> list[Compared]:
    """A busy machine makes one figure in some dozens look slower, so what does is measured again:
    twice as many rounds must agree."""
    taken = [_round(engine, emptied, base, number) for number in range(rounds)]
    if suspects := _slower(compared(engine, taken)):
        _say(f"{engine}: {', '.join(suspects)} may be slower, so all is measured again")
        taken += [_round(engine, emptied, base, number) for number in range(rounds, 2 * rounds)]
    return compared(engine, taken)


def _round(engine: str, emptied: Emptied, base: Tree, number: int) -> tuple[Figures, Figures]:
    """Who is first takes turns: a machine that slows down is nobody's fault."""
    start = time.monotonic()
    trees = (THIS, base) if number % 2 == 0 else (base, THIS)
    figures = {}
    for tree in trees:
        with emptied() as url:
            figures[tree] = tree.ask(_CHILD, url)
    _say(f"{engine}, round {number + 1}: {time.monotonic() - start:.0f} s")
    return figures[THIS], figures[base]


def _slower(found: Sequence[Compared]) -> list[str]:
    return [one.name for one in found if one.verdict == "slower"]


# -- stores ----------------------------------------------------------------------------------------


@contextmanager
def _memory(folder: Path) -> Iterator[Emptied]:
    yield lambda: nullcontext("memory://")


@contextmanager
def _sqlite(folder: Path) -> Iterator[Emptied]:
    @contextmanager
    def emptied() -> Iterator[str]:
        path = folder / "guard.db"
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
        yield lambda: server.copied("empty", "guard")
    finally:
        server.stop()


@contextmanager
def _redis(folder: Path) -> Iterator[Emptied]:
    server = RedisServer()

    @contextmanager
    def emptied() -> Iterator[str]:
        server.call("FLUSHALL")
        yield server.url()

    try:
        yield emptied
    finally:
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
    head = ("store", "figure", "this tree", base, "unit", "speed", "min - max", "rounds", "")
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
