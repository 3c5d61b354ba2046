"""All interleavings of the models, on the memory store and on SQLite; and that none is left out."""

import pytest

from gantline.testing.model import explore, small_models, wide_models
from gantline.testing.model.world import Model
from tests.harness import MemoryHarness, SqliteHarness

_LONG = ("an operator and a worker lose answers", "a worker loses an answer or dies")
"""Of these, `make test` has the seeded bugs only."""


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, id=str(model), marks=[pytest.mark.wide] if str(model) in _LONG else [])
        for model in small_models()
    ],
)
async def test_no_order_of_steps_breaks_a_promise(model: Model) -> None:
    explored = await explore(model, MemoryHarness)
    assert explored.interleavings > 200
    assert explored.ends > 50


@pytest.mark.wide
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("model", wide_models(), ids=str)
async def test_no_order_of_more_steps_breaks_a_promise(model: Model) -> None:
    explored = await explore(model, MemoryHarness)
    print(f"{model}: {explored}")  # noqa: T201  # -s shows how much was explored
    assert explored.interleavings > 10_000


@pytest.mark.wide
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("model", small_models(), ids=str)
async def test_sqlite_breaks_no_promise_either(model: Model) -> None:
    assert (await explore(model, SqliteHarness)).interleavings > 200


@pytest.mark.parametrize("index", [1, 3])
async def test_to_follow_a_known_state_only_once_leaves_no_interleaving_out(index: int) -> None:
    """Each run by itself, there are as many as the merged states stand for."""
    model = small_models()[index]
    merged = await explore(model, MemoryHarness)
    alone = await explore(model, MemoryHarness, merged=False)
    assert alone.runs == alone.ends == alone.interleavings == merged.interleavings
