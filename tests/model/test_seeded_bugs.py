"""The exploration is worth what it catches: stores and decisions with one bug each."""

from typing import Any

import msgspec
import pytest

from gantline.contract.transition import Transition
from gantline.manager import decide, manager
from gantline.stores.memory import MemoryStore
from gantline.testing.model import Violation, explore, small_models
from gantline.testing.model.world import Model
from tests import broken_stores as broken
from tests.harness import MemoryHarness

MODELS = {model.name: model for model in small_models()}
REAPED = MODELS["two workers, time and the reaper"]
OPERATED = MODELS["a worker and an operator who cancels, redrives and deletes"]
KEYED = MODELS["a redrive, a delete and two submits of the key of a failed job"]
CLASHING = MODELS["a submit with another payload beside the end of a job"]
SLOW = MODELS["two runs of one worker, which was slow"]
LOSING = MODELS["a worker loses an answer or dies"]

CAUGHT: dict[type[MemoryStore], Model] = {
    broken.FenceDropped: REAPED,
    broken.StateRecheckDropped: OPERATED,
    broken.VersionRecheckDropped: KEYED,
    broken.ExpiryRecheckDropped: REAPED,
    broken.CancelRecheckDropped: OPERATED,
    broken.LeaseUnfenced: SLOW,
    broken.ClaimForgetsItsId: LOSING,
    broken.ClaimsTheFuture: REAPED,
    broken.FenceFollowsAttempt: REAPED,
    broken.TokensReused: SLOW,
    broken.ApplyForgetsItsToken: LOSING,
    broken.ApplyTrustsTheToken: REAPED,
    broken.CountersKept: REAPED,
    broken.KeyFreedByAnyone: OPERATED,
    broken.KeyNeverFreed: REAPED,
    broken.KeyDiesWithItsJob: REAPED,
    broken.KeyNotRetaken: OPERATED,
    broken.FingerprintIgnored: CLASHING,
    broken.NumbersReused: KEYED,
    broken.LastNumberForgotten: OPERATED,
    broken.NumbersSkipped: REAPED,
    broken.SubmissionsUnlogged: REAPED,
}


@pytest.mark.parametrize("store", CAUGHT, ids=lambda store: store.__name__)
async def test_a_broken_store_is_caught(store: type[MemoryStore]) -> None:
    with pytest.raises(Violation) as caught:
        await explore(CAUGHT[store], lambda: MemoryHarness(store))
    print(store.__name__, caught.value.runs, caught.value)  # noqa: T201  # -s shows them


async def test_the_schedule_that_is_found_shortest_first_is_short() -> None:
    """A run is taken over, and the first worker ends it all the same."""
    with pytest.raises(Violation) as caught:
        await explore(SLOW, lambda: MemoryHarness(broken.FenceDropped), shortest_first=True)
    assert len(caught.value.steps) <= 10


async def test_a_cancel_that_is_not_considered_again_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager, "_reconsidered", lambda ending, result: None)
    with pytest.raises(Violation, match="nothing follows"):
        await explore(OPERATED, MemoryHarness)


async def test_a_reaper_that_does_not_look_again_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = decide._after_crash

    def forget(*given: Any) -> Transition:
        transition = sound(*given)
        guard = msgspec.structs.replace(transition.guard, only_expired=False)
        return msgspec.structs.replace(transition, guard=guard)

    monkeypatch.setattr(decide, "_after_crash", forget)
    with pytest.raises(Violation, match="live worker"):
        await explore(REAPED, MemoryHarness)
