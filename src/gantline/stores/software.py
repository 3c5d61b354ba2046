"""Which software a store runs on, for the doctor and for bug reports."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from gantline.contract.store import JobStore


@runtime_checkable
class TellsSoftware(Protocol):
    """A store that can name its server or library, and its driver. It must be open."""

    async def software(self) -> Mapping[str, str]:
        """Versions by name."""
        ...


async def software_of(store: JobStore) -> Mapping[str, str]:
    """What a store tells about itself; nothing where it does not."""
    return await store.software() if isinstance(store, TellsSoftware) else {}
