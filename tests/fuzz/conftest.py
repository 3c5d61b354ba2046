"""Runs each test for its share of the minutes, with one random seed after another."""

import asyncio
import random
import time
from collections.abc import Iterator

import hypothesis
import pytest

from tests.fuzz.effort import MINUTES, SEED


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all inputs of a module."""
    with asyncio.Runner() as runner:
        yield runner


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not (MINUTES or SEED) or not hypothesis.is_hypothesis_test(test):
        return None
    chosen = [item for item in pyfuncitem.session.items if _is_fuzzing(item)]
    until = time.monotonic() + MINUTES * 60 / len(chosen)
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    for number in _seeds():
        print(f"{pyfuncitem.nodeid}: GANTLINE_FUZZ_SEED={number}", flush=True)  # noqa: T201
        hypothesis.seed(number)(test)(**arguments)
        if time.monotonic() >= until:
            break
    return True


def _seeds() -> Iterator[int]:
    if SEED:
        yield SEED
        return
    while True:
        yield random.randrange(1, 2**32)


def _is_fuzzing(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and hypothesis.is_hypothesis_test(item.obj)
