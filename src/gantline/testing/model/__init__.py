"""The model: every interleaving of a few actors over one job and one key, on any store.

    @pytest.mark.parametrize("model", small_models(), ids=str)
    async def test_my_store(model):
        await explore(model, MyHarness)

Each step of an actor is one call of the store; whatever the order, every answer and every change
must be what the protocol says. It shows what an order of calls can break. What happens inside one
call beside another is for the races of the conformance suite, and for tests of the store itself.
"""

from gantline.testing.model.explorer import Explored, Violation, explore
from gantline.testing.model.models import small_models, wide_models
from gantline.testing.model.world import Model

__all__ = ["Explored", "Model", "Violation", "explore", "small_models", "wide_models"]
