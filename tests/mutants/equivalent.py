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
    "a floor that is too low is allowed; it only costs time": (
        "stores.sqlite.ready.take_due: dropped_call 3",
    ),
    "where none is due, or none may be taken, none is found": (
        "stores.sqlite.ready._crash_counts: swap_op 1",
        "stores.sqlite.ready._crash_counts: swap_op 2",
        "stores.sqlite.ready._claimable_types: swap_op 1",
        "stores.sqlite.ready._Search.find: swap_op 1",
        "stores.sqlite.ready._Search.find: if_exp 2",
    ),
    "no two rows are equal": ("stores.sqlite.ready.enqueue: swap_op 2",),
    "a lane that is opened too early is merged all the same": (
        "stores.sqlite.ready._Search._first_due: number_below 1",
        "stores.sqlite.ready._Search._first_due: swap_op 4",
        "stores.sqlite.ready._Search._first_due: number 4",
        "stores.sqlite.ready._Search._first_due: number_below 5",
    ),
    "a page of another size is followed by the next": (
        "stores.sqlite.ready._Search._first_due: number 5",
        "stores.sqlite.ready._Search._first_due: number 6",
        "stores.sqlite.ready._Search._first_due: number_below 4",
    ),
    "no floor is equal to a row of another lane": (
        "stores.sqlite.ready._Search._first_due: number 1",
    ),
    "each is a round of its own, and the last round is written too": (
        "stores.sql.changes.split_by_job: arg_removal 3",
        "stores.sqlite.apply._Change.add: dropped_call 3",
    ),
}
EQUIVALENT: Final = {name: reason for reason, names in _REASONS.items() for name in names}
