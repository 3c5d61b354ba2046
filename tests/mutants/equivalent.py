"""Generated mutants that no test can notice, each with the reason."""

from typing import Final

_REASONS: Final[dict[str, tuple[str, ...]]] = {
    "at the bound itself, the strategy that leaves all as it is gives the same": (
        "manager.decide.placement_of: swap_op 2",
        "manager.decide.placement_of: swap_op 3",
    ),
    "None is as false as False": (
        "contract.transition.may_be_repeat: match 3",
        "contract.transition.may_be_repeat: returned_none 3",
    ),
    "the first of a heap is its least, so whole heaps compare alike": (
        "stores.memory.store.MemoryStore._pop_first_due: arg_removal 6",
        "stores.memory.store.MemoryStore._pop_first_due: arg_removal 7",
    ),
    "what is Queued has a time due": ("stores.memory.store.MemoryStore._start: if_exp 2",),
    "an instant and a span can be added either way": (
        "stores.memory.store.MemoryStore._start: swapped_arguments 2",
        "stores.memory.store.MemoryStore._move: swapped_arguments 3",
    ),
    "who looks at runs passes over those without a lease": (
        "stores.memory.store.MemoryStore._move: dropped_call 1",
        "stores.memory.store.MemoryStore._move: arg_removal 1",
        "stores.memory.store.MemoryStore._move: swapped_arguments 1",
    ),
    "the key of a job has no time of its own": (
        "stores.memory.store.MemoryStore._keep_or_free: arg_removal 4",
    ),
    "while a job lives, it holds its key and no other job does": (
        "stores.memory.store.MemoryStore._keep_or_free: swap_op 1",
    ),
}
EQUIVALENT: Final = {name: reason for reason, names in _REASONS.items() for name in names}
