"""Imports on demand: a part of the product needs only the libraries that it uses itself."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def face(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Make a package's `__getattr__`: from its modules, with the names that each offers.

    Each is loaded when it is first asked for.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports that need the extra of this name: say how to get what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise ModuleNotFoundError(
            f"This needs the module {missing}, which is not installed. "
            f"Run `pip install 'gantline[{name}]'`.",
            name=error.name,
        ) from None
