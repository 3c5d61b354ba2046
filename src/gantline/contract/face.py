"""The face of a package: the names that it offers, each loaded when it is first asked for.

So that one part of a package can be used without the libraries that another part needs.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def face(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Make a package's `__getattr__`: from its modules, with the names that each offers."""
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load
