"""What a store has to say about how its server is configured, for the doctor."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from gantline.contract.store import JobStore


class Advice(NamedTuple):
    """What was found, whether it is as it should be, and what to do if not."""

    what: str
    is_good: bool
    next_step: str


@runtime_checkable
class GivesAdvice(Protocol):
    """A store that looks at its server's configuration. It must be open."""

    async def advice(self) -> Sequence[Advice]: ...


async def advice_of(store: JobStore) -> Sequence[Advice]:
    """What a store advises; nothing where it does not."""
    return await store.advice() if isinstance(store, GivesAdvice) else ()
