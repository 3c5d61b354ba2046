"""Health: whether this process lives, and whether it is ready for work."""

from typing import Final

from gantline.contract.errors import InvalidInput
from gantline.telemetry.checks import (
    WELL,
    Check,
    StoreCheck,
    Watched,
    check_bridge,
    check_broker,
    check_workers,
)
from gantline.telemetry.loop_watch import LoopWatch
from gantline.telemetry.routes import Response
from gantline.wakeups.remote import RemoteWakeup

LOOP_MAY_BE_SILENT_SECONDS: Final = 3.0


class Health:
    """Answers probes. `watch` is the loop that does the work, where another one answers."""

    def __init__(
        self,
        watched: Watched,
        *,
        watch: LoopWatch | None = None,
        expects_worker: bool = False,
        requires_broker: bool = False,
    ) -> None:
        if requires_broker:
            check_there_is(watched.broker)
        self._watched = watched
        self._watch = watch
        self._expects_worker = expects_worker
        self._requires_broker = requires_broker
        self._store = StoreCheck(watched)

    async def alive(self) -> Response:
        """The process and its loop, and nothing else: a restart mends neither store nor network."""
        return answer({"loop": self._loop()})

    async def ready(self) -> Response:
        checks = {"loop": self._loop()}
        checks |= await self._store.read()
        checks |= check_workers(self._watched.workers, expected=self._expects_worker)
        checks |= check_bridge(self._watched.bridge)
        if self._requires_broker:
            checks["broker"] = check_broker(self._watched.broker)
        return answer(checks)

    def _loop(self) -> Check:
        if self._watch is None or self._watch.silent_seconds <= LOOP_MAY_BE_SILENT_SECONDS:
            return WELL
        return Check(ok=False, message="The event loop is blocked.")


def check_there_is(broker: RemoteWakeup | None) -> None:
    """Raise InvalidInput where a broker is required that nobody has named."""
    if broker is None:
        raise InvalidInput(
            "Readiness is to require a broker, but there is none.",
            next_step="Name one with GANTLINE_TRIGGER, or do not require it.",
        )


def answer(checks: dict[str, Check]) -> Response:
    """200 when all is well, else 503; each check by its name."""
    ok = all(check.ok for check in checks.values())
    return Response.of(200 if ok else 503, {"ok": ok, "checks": checks})
