"""Health: whether this process lives, and whether it is ready for work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from gantline.contract.errors import InvalidInput, SchemaMismatch, StoreMisconfigured
from gantline.contract.store import JobStore
from gantline.runtime import monotonic
from gantline.stores.migrations import migrator_of, plan
from gantline.telemetry.health_server import Response
from gantline.telemetry.loop_watch import LoopWatch
from gantline.wakeups.remote import RemoteWakeup
from gantline.worker.worker import Worker

_log = logging.getLogger("gantline.telemetry")

LOOP_MAY_BE_SILENT_SECONDS: Final = 3.0
_DEADLINE_SECONDS: Final = 2.0
_STORE_MAX_AGE_SECONDS: Final = 0.5
_MIGRATIONS_MAX_AGE_SECONDS: Final = 30.0


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one part. The message is a constant, since anybody may read it."""

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


class ServedApi(Protocol):
    """An API in this process."""

    @property
    def is_overloaded(self) -> bool:
        """Whether requests of anybody are refused."""
        ...

    @property
    def has_stuck_code(self) -> bool: ...


class WatchedApp(Protocol):
    """What health needs of an application."""

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
    """Checks that the store answers, with the schema of this code; one call for all probes."""

    def __init__(self, watched: WatchedApp, *, clock: Callable[[], float] = monotonic) -> None:
        self._watched = watched
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at: float | None = None
        self._store = self._migrations = WELL
        self._migrations_good_until = 0.0

    async def read(self) -> dict[str, Check]:
        async with self._lock:
            if self._read_at is None or self._clock() - self._read_at >= _STORE_MAX_AGE_SECONDS:
                await self._read()
                self._read_at = self._clock()
        return {"store": self._store, "migrations": self._migrations}

    async def _read(self) -> None:
        store = self._watched.store
        before = (self._store.ok, self._migrations.ok)
        self._store = await _check_call(store.ping, "The store does not answer.")
        if not self._store.ok:
            self._migrations_good_until = 0.0
            self._migrations = Check(ok=False, message="Not known while the store is away.")
        elif self._clock() >= self._migrations_good_until:
            self._migrations = await _check_call(
                lambda: _check_schema(store), "The schema is not the one that this code needs."
            )
            if self._migrations.ok:
                self._migrations_good_until = self._clock() + _MIGRATIONS_MAX_AGE_SECONDS
        if before != (now := (self._store.ok, self._migrations.ok)) and all(now):
            _log.info("the store is ready again")


async def _check_call(call: Callable[[], Awaitable[object]], message: str) -> Check:
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            await call()
    except TimeoutError:
        _log.warning("%s Not within %g s.", message, _DEADLINE_SECONDS)
    except Exception as error:
        # The driver's text may name hosts and files: for the log, not for the client.
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
    """Check that no worker drains, and that all look for work. None is required unless expected."""
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


def check_api(api: ServedApi) -> dict[str, Check]:
    """Code that is stuck is shown and fails nothing: one tenant holds it up, for itself alone."""
    overloaded = Check(ok=False, message="Too many requests are under way.")
    stuck = Check(ok=True, message="Code of the application has not returned; the log names it.")
    return {
        "load": overloaded if api.is_overloaded else WELL,
        "code": stuck if api.has_stuck_code else WELL,
    }


def check_bridge(bridge: RunningBridge | None) -> dict[str, Check]:
    if bridge is None:
        return {}
    down = Check(ok=False, message="The bridge's broker is not connected.")
    return {"bridge": WELL if bridge.is_connected else down}


class HealthPages:
    """The pages for probes. `watch` is of the loop that does the work, where another one serves."""

    def __init__(
        self,
        watched: WatchedApp,
        *,
        watch: LoopWatch | None = None,
        expects_worker: bool = False,
        requires_broker: bool = False,
        api: Callable[[], ServedApi] | None = None,
    ) -> None:
        """`api` gives that of this process."""
        if requires_broker:
            require_broker(watched.broker)
        self._watched = watched
        self._watch = watch
        self._expects_worker = expects_worker
        self._requires_broker = requires_broker
        self._api = api
        self._store = StoreCheck(watched)

    async def alive(self) -> Response:
        """Check the process and its loop only: a restart repairs neither store nor network."""
        return build_response({"loop": self._loop()})

    async def ready(self) -> Response:
        checks = {"loop": self._loop()}
        checks |= await self._store.read()
        checks |= check_workers(self._watched.workers, expected=self._expects_worker)
        checks |= check_bridge(self._watched.bridge)
        if self._api is not None:
            checks |= check_api(self._api())
        if self._requires_broker:
            checks["broker"] = check_broker(self._watched.broker)
        return build_response(checks)

    def _loop(self) -> Check:
        if self._watch is None or self._watch.silent_seconds <= LOOP_MAY_BE_SILENT_SECONDS:
            return WELL
        return Check(ok=False, message="The event loop is blocked.")


def require_broker(broker: RemoteWakeup | None) -> None:
    """Raise InvalidInput where a broker is required that nobody has named."""
    if broker is None:
        raise InvalidInput(
            "Readiness is to require a broker, but there is none.",
            next_step="Name one with GANTLINE_TRIGGER, or do not require it.",
        )


def build_response(checks: dict[str, Check]) -> Response:
    """200 when all is well, else 503; each check by its name."""
    ok = all(check.ok for check in checks.values())
    return Response.of(200 if ok else 503, {"ok": ok, "checks": checks})
