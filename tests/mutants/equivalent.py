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
}
EQUIVALENT: Final = {name: reason for reason, names in _REASONS.items() for name in names}
