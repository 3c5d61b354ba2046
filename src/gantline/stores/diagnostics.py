"""What a store can say about its server, for the doctor and for bug reports."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from gantline.contract.store import JobStore


class Advice(NamedTuple):
    """One thing that was checked, whether it is good, and what to do if not."""

    what: str
    is_good: bool
    next_step: str


@runtime_checkable
class GivesAdvice(Protocol):
    """A store that checks the configuration of its server. It must be open."""

    async def advice(self) -> Sequence[Advice]: ...


async def advice_of(store: JobStore) -> Sequence[Advice]:
    """Ask a store for advice; nothing where it gives none."""
    return await store.advice() if isinstance(store, GivesAdvice) else ()


@runtime_checkable
class NamesSoftware(Protocol):
    """A store that can name its server or library, and its driver. It must be open."""

    async def software(self) -> Mapping[str, str]:
        """Versions by name."""
        ...


async def software_of(store: JobStore) -> Mapping[str, str]:
    """Ask a store for its software; nothing where it does not say."""
    return await store.software() if isinstance(store, NamesSoftware) else {}
