"""A rule of the suite: a sentence, and a check that fails where a store breaks it."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from gantline.contract.capabilities import Capabilities
from gantline.testing.conformance.bench import Bench, StoreHarness

_MARK = "__gantline_cases__"


@dataclass(frozen=True)
class Rule:
    """One rule, for one case where it has several."""

    name: str
    topic: str
    body: Callable[[Bench], Awaitable[None]]
    needs: str = ""
    """The capability without which a store cannot be held to it."""

    def __str__(self) -> str:
        return f"{self.topic}.{self.name}"

    def applies_to(self, capabilities: Capabilities) -> bool:
        return not self.needs or bool(getattr(capabilities, self.needs))

    async def check(self, harness: StoreHarness) -> None:
        """Run the rule on a fresh store of this harness, if it applies to such a store."""
        bench = await Bench.on(harness)
        try:
            if self.applies_to(bench.store.capabilities):
                await self.body(bench)
        finally:
            await bench.close()


def rule(function: Callable[[Bench], Awaitable[None]]) -> Callable[[Bench], Awaitable[None]]:
    """Mark a function as a rule. Its name is the sentence."""
    setattr(function, _MARK, None)
    return function


def rule_for(cases: Iterable[Any]) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Mark a function as a rule that holds for each of these cases, given as second argument."""

    def mark(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        setattr(function, _MARK, list(cases))
        return function

    return mark


def rules_of(module: ModuleType) -> list[Rule]:
    """The rules of a module, in the order in which they are written.

    They need the capability that the module names as `NEEDS`, if it does.
    """
    needs = getattr(module, "NEEDS", "")
    topic = module.__name__.rsplit(".", 1)[-1]
    found: list[Rule] = []
    for name, function in vars(module).items():
        if not hasattr(function, _MARK):
            continue
        cases = getattr(function, _MARK)
        if cases is None:
            found.append(Rule(name, topic, function, needs))
        else:
            found += [
                Rule(f"{name}[{_called(case)}]", topic, _bound(function, case), needs)
                for case in cases
            ]
    return found


def _called(case: Any) -> str:
    return case.__name__.strip("_") if isinstance(case, FunctionType) else str(case)


def _bound(
    function: Callable[..., Awaitable[None]], case: Any
) -> Callable[[Bench], Awaitable[None]]:
    return lambda bench: function(bench, case)
