"""The checks behind readiness: each says whether it is well, in words that anybody may read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Final, Protocol

import msgspec

from gantline.contract.errors import SchemaMismatch, StoreMisconfigured
from gantline.contract.store import JobStore
from gantline.stores.migrations import migrator_of, plan
from gantline.wakeups.remote import RemoteWakeup
from gantline.worker.worker import Worker

_log = logging.getLogger("gantline.telemetry")

_DEADLINE_SECONDS: Final = 2.0
_STORE_MAX_AGE_SECONDS: Final = 0.5
_MIGRATIONS_MAX_AGE_SECONDS: Final = 30.0


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one part stands. The message is constant: who may read it is not known."""

    ok: bool
    message: str = ""


WELL: Final = Check(ok=True)


class RunningBridge(Protocol):
    """A bridge that takes messages in."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def taken(self) -> Mapping[str, int]:
        """How many messages were accepted, duplicate or rejected."""
        ...


class Watched(Protocol):
    """What is asked after: an application."""

    @property
    def store(self) -> JobStore: ...

    @property
    def broker(self) -> RemoteWakeup | None: ...

    @property
    def bridge(self) -> RunningBridge | None:
        """The one that runs in this process."""
        ...

    @property
    def workers(self) -> Sequence[Worker]:
        """Those that it runs in this process."""
        ...


class StoreCheck:
    """The store answers, and has the schema that this code knows. Asked once for all who ask."""

    def __init__(self, watched: Watched, *, clock: Callable[[], float] = monotonic) -> None:
        self._watched = watched
        self._clock = clock
        self._asking = asyncio.Lock()
        self._asked_at: float | None = None
        self._store = self._migrations = WELL
        self._migrations_good_until = 0.0

    async def read(self) -> dict[str, Check]:
        async with self._asking:
            if self._asked_at is None or self._clock() - self._asked_at >= _STORE_MAX_AGE_SECONDS:
                await self._ask()
                self._asked_at = self._clock()
        return {"store": self._store, "migrations": self._migrations}

    async def _ask(self) -> None:
        store = self._watched.store
        before = (self._store.ok, self._migrations.ok)
        self._store = await _answered(store.ping, "The store does not answer.")
        if not self._store.ok:
            self._migrations_good_until = 0.0
            self._migrations = Check(ok=False, message="Not known while the store is away.")
        elif self._clock() >= self._migrations_good_until:
            self._migrations = await _answered(
                lambda: _check_schema(store), "The schema is not the one that this code needs."
            )
            if self._migrations.ok:
                self._migrations_good_until = self._clock() + _MIGRATIONS_MAX_AGE_SECONDS
        if before != (now := (self._store.ok, self._migrations.ok)) and all(now):
            _log.info("the store is ready again")


async def _answered(ask: Callable[[], Awaitable[object]], message: str) -> Check:
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            await ask()
    except TimeoutError:
        _log.warning("%s Not within %g s.", message, _DEADLINE_SECONDS)
    except Exception as error:
        # What the driver says may name hosts and files: for the log, not for whoever asks.
        _log.warning("%s %s", message, error)
    else:
        return WELL
    return Check(ok=False, message=message)


async def _check_schema(store: JobStore) -> None:
    try:
        migrator = migrator_of(store)
    except StoreMisconfigured:
        return  # it has none
    if missing := plan(migrator.known, await migrator.applied()):
        raise SchemaMismatch(f"{len(missing)} migrations are missing.")


def check_workers(workers: Sequence[Worker], *, expected: bool) -> dict[str, Check]:
    """Not draining, and looking for work. Where no worker is expected, none is missed."""
    if not workers:
        missing = Check(ok=False, message="The worker is not running yet, or no longer.")
        return {"consuming": missing} if expected else {}
    draining = any(worker.is_draining for worker in workers)
    trouble = next(filter(None, (worker.trouble() for worker in workers)), None)
    return {
        "draining": Check(ok=False, message="It is stopping.") if draining else WELL,
        "consuming": WELL if trouble is None else Check(ok=False, message=trouble),
    }


def check_broker(broker: RemoteWakeup | None) -> Check:
    if broker is not None and broker.is_connected:
        return WELL
    return Check(ok=False, message="The broker is not connected.")


def check_bridge(bridge: RunningBridge | None) -> dict[str, Check]:
    if bridge is None:
        return {}
    down = Check(ok=False, message="The bridge's broker is not connected.")
    return {"bridge": WELL if bridge.is_connected else down}
