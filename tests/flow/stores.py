"""A memory store that says it has limits, with a gate as a test sets it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gantline.contract.capabilities import Capabilities
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreUnavailable
from gantline.contract.flow import GateState
from gantline.stores.memory import MemoryStore

_KNOWN = MemoryStore(clock=SystemClock()).capabilities


class LimitedStore(MemoryStore):
    """Its claims are those of the memory store."""

    without_limits: Capabilities = msgspec.structs.replace(_KNOWN, limits=False)
    capabilities: Any = msgspec.structs.replace(_KNOWN, limits=True)
    gate: GateState | None = None

    async def gates(self, names: Sequence[str]) -> list[GateState]:
        if self.gate is None:
            raise StoreUnavailable("It is away.")
        return [self.gate for _ in names]
