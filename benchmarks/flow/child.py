"""A process that is measured: `python -m benchmarks.flow.child MODULE URL SHAPE WHAT [OPTION …]`.

It drains like those of the contest, and tells beside the reading when each of its runs was.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, Final

from benchmarks.contest import meter
from benchmarks.flow.player import Player, Shape, player_of

_QUIET_SECONDS: Final = 3.0


def main() -> None:
    """End at once: whatever still runs has nothing to tell, and not every peer can be stopped."""
    options = _options()
    try:
        player = player_of(options.module)(options.url, Shape(*json.loads(options.shape)))
        with asyncio.Runner(loop_factory=player.loop_factory) as runner:
            runner.run(_ROLES[options.what](player, options))
    except BaseException:
        traceback.print_exc()
        _leave(1)
    _leave(0)


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("url")
    parser.add_argument("shape")
    parser.add_argument("what", choices=list(_ROLES))
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    return parser.parse_args()


async def _make(player: Player, options: argparse.Namespace) -> None:
    await player.make()


async def _fill(player: Player, options: argparse.Namespace) -> None:
    await player.open()
    await player.fill(options.jobs)


async def _drain(player: Player, options: argparse.Namespace) -> None:
    """Work until so many jobs are done, or until none comes."""

    def read() -> None:
        limits = {
            "most_jobs": options.jobs or math.inf,
            "most_seconds": options.seconds or math.inf,
            "quiet_seconds": _QUIET_SECONDS,
        }
        print(json.dumps(meter.read(player.done, **limits)))
        _leave(0)

    await _work(player, options, read)


async def _note(player: Player, options: argparse.Namespace) -> None:
    """Work until none comes or the time is over, and tell of each run."""

    def read() -> None:
        most_seconds = options.seconds or math.inf
        meter.read(player.done, most_seconds=most_seconds, quiet_seconds=_QUIET_SECONDS)
        print(json.dumps(player.runs[:]))
        _leave(0)

    await _work(player, options, read)


async def _work(player: Player, options: argparse.Namespace, observe: Callable[[], None]) -> None:
    """Observe in a thread, for a worker may block the loop; the process ends with it."""
    await player.open()
    await asyncio.to_thread(meter.wait_for_go)
    Thread(target=observe, daemon=True).start()
    await player.work(options.slots)
    raise RuntimeError("the worker has ended by itself")


_ROLES: Final[dict[str, Callable[[Player, argparse.Namespace], Coroutine[Any, Any, None]]]] = {
    "make": _make,
    "fill": _fill,
    "drain": _drain,
    "note": _note,
}


if __name__ == "__main__":
    main()
