"""The functions that generated mutants are made of: what decides, claims and applies."""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any, Final

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.generating import generate
from tests.mutants.mutant import Mutant, Part
from tests.seeded_bugs.breaking import whole

_MEMORY: Final = "gantline.stores.memory"
_SQLITE: Final = "gantline.stores.sqlite"

# A module with nothing after its colon has all its functions changed.
_TARGETS: Final[dict[Part, tuple[str, ...]]] = {
    "decide": ("gantline.manager.decide:",),
    "transition": ("gantline.contract.transition:",),
    "memory store": (
        *(
            f"{_MEMORY}.store:MemoryStore.{name}"
            for name in (
                *("claim", "_take_due", "_take_crashed", "_pop_first_due", "_is_current"),
                *("_enqueue", "_start", "_lease_of", "apply", "_apply", "_refuse_guard"),
                *("_refuse_attachments", "_refuse_follow_ups", "_write", "_move"),
                *("_keep_or_free", "_log"),
            )
        ),
        f"{_MEMORY}.entry:Entry.has_applied",
    ),
    "sqlite store": (
        *(f"{_SQLITE}.due:{name}" for name in ("take_due", "_crash_counts", "_Search.take")),
        *(
            f"{_SQLITE}.ready:{name}"
            for name in ("enqueue", "Merge.take", "Merge._open", "raise_floors")
        ),
        *(
            f"{_SQLITE}.turns:{name}"
            for name in (
                *("enter", "_Sharing.take", "_alternate", "Rotation.take", "Rotation.groups_of"),
                *("Rotation._many_groups", "Rotation.bring_due", "Rotation.write"),
            )
        ),
        *(
            f"{_SQLITE}.limits:{name}"
            for name in (
                *("_GateRoom.__init__", "Limits.of_type", "Limits.room", "Limits.full_at"),
                *("Limits.take", "Limits.pass_gates", "mark_limited"),
            )
        ),
        *(f"{_SQLITE}.apply:_Change.{name}" for name in ("add", "_add_with_attachments")),
        *(
            f"gantline.stores.sql.changes:{name}"
            for name in (
                *("ChangedRows.add", "ChangedRows._leave", "ChangedRows._keep_or_free"),
                *("has_attachments", "split_by_job"),
            )
        ),
        f"{_SQLITE}.claim:_take",
    ),
}

UNTRIED: Final = (
    *(f"stores.sqlite.{name}" for name in ("ready.", "turns.", "limits.", "claim._take")),
    "stores.sqlite.apply._Change.add",
    "stores.sqlite.apply._Change._add_with_attachments",
)
"""Functions that are newer than the results: trying their mutants takes hours, see `make mutants`.

They are not counted. Whoever has tried them removes them here.
"""


def generate_all() -> Iterator[Mutant]:
    for part, targets in _TARGETS.items():
        for target in targets:
            for function in [target] if target[-1] != ":" else _functions_of(target[:-1]):
                yield from _mutants_of(part, function)


def _mutants_of(part: Part, target: str) -> Iterator[Mutant]:
    module, function = target.split(":")
    for change in generate(target):
        name = f"{module.removeprefix('gantline.')}.{function}: {change.name}"
        make = partial(whole, target, change.source)
        yield Mutant(name, part, change.change, make, EQUIVALENT.get(name, ""))


def _functions_of(module: str) -> Iterator[str]:
    """All that are written in a module, in their order."""
    for name, value in vars(import_module(module)).items():
        if getattr(value, "__module__", None) != module:
            continue
        if isinstance(value, FunctionType):
            yield f"{module}:{name}"
        elif isinstance(value, type):
            for method, found in vars(value).items():
                if _is_written_in(module, found):
                    yield f"{module}:{name}.{method}"


def _is_written_in(module: str, value: Any) -> bool:
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    return (
        isinstance(value, FunctionType)
        and value.__module__ == module
        and not value.__code__.co_filename.startswith("<")
    )
