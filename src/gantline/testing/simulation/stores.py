"""The store of a run, as each process opens it: watched, behind the network, and recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from gantline.contract.clock import SystemClock
from gantline.contract.store import JobStore
from gantline.proof.history import MemoryHistory, recorded
from gantline.stores.memory import MemoryStore
from gantline.stores.sqlite.location import Location
from gantline.stores.sqlite.store import SqliteStore
from gantline.testing.simulation.network import Network
from gantline.testing.simulation.outside import Outside
from gantline.testing.simulation.script import StoreKind
from gantline.testing.simulation.world import Process

_FILE: Final = "jobs.db"

Wrap = Callable[[JobStore, Process], JobStore]
"""Put something between a process and its store, like a bug or a recorder."""


class Stores:
    """Opens it. All processes share the memory store; of SQLite each has its own on one file."""

    def __init__(
        self, kind: StoreKind, folder: Path, network: Network, outside: Outside, wrap: Wrap
    ) -> None:
        self.file = folder / _FILE
        self.history = MemoryHistory()
        self._memory = MemoryStore(clock=SystemClock()) if kind == "memory" else None
        self._network = network
        self._outside = outside
        self._wrap = wrap

    def open_plain(self) -> JobStore:
        """One without faults, that nobody watches."""
        if self._memory is not None:
            return self._memory
        location = Location(self.file, sync="normal", busy_seconds=0.0)
        return SqliteStore(location, clock=SystemClock())

    def open_in(self, process: Process) -> JobStore:
        """The store as this process sees it."""
        store = self._wrap(self._outside.watched(self.open_plain()), process)
        connected = self._network.connect(process, store)
        return recorded(connected, self.history, process=process.label)
