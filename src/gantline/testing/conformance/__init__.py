"""The conformance suite: what every store must do, as named rules that anyone can run.

    @pytest.mark.parametrize("rule", all_rules(), ids=str)
    async def test_my_store(rule):
        await rule.check(MyHarness())

A rule that a store cannot be held to, by its own capabilities, is not for it: `Rule.applies_to`.
"""

from gantline.testing.conformance import (
    answers,
    applying,
    claiming,
    clocks,
    crashes,
    emitting,
    events,
    expiry,
    external_ids,
    fencing,
    flow_torture,
    gates,
    inserting,
    keys,
    leases,
    limits,
    maintenance,
    moving,
    odd_input,
    on_request,
    races,
    reading,
    records,
    states,
    suspects,
    torture,
    turns,
    visibility,
    waiting,
)
from gantline.testing.conformance.bench import Bench, StoreHarness
from gantline.testing.conformance.rule import Rule, rules_of

_TOPICS = (
    inserting,
    claiming,
    leases,
    suspects,
    expiry,
    waiting,
    turns,
    limits,
    gates,
    flow_torture,
    applying,
    states,
    fencing,
    keys,
    external_ids,
    events,
    emitting,
    on_request,
    reading,
    visibility,
    records,
    odd_input,
    maintenance,
    moving,
    races,
    answers,
    crashes,
    clocks,
    torture,
)


def all_rules() -> list[Rule]:
    """Every rule, case by case, in the order in which they build on each other."""
    return [rule for topic in _TOPICS for rule in rules_of(topic)]


__all__ = ["Bench", "Rule", "StoreHarness", "all_rules"]
