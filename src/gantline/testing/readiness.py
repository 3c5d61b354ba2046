"""Readiness as a test asks for it: of a worker in this process, or over the port of one."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec

from gantline.telemetry.health import WELL, Check, check_workers
from gantline.worker.worker import Worker

Readiness = Callable[[], Awaitable[Check]]
"""Ask one worker, or one supervisor for all its workers, whether it is ready."""

_ANSWER_SECONDS: Final = 10.0


def of_worker(worker: Worker) -> Readiness:
    """The readiness of a worker in this process."""

    async def ask() -> Check:
        return _worst(check_workers([worker], expected=True).values())

    return ask


def of_port(port: int, *, host: str = "127.0.0.1") -> Readiness:
    """The readiness of `gantline worker --health`. Where nobody answers, there is no worker."""

    async def ask() -> Check:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
                    _, _, body = (await reader.read()).partition(b"\r\n\r\n")
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            return Check(ok=False, message=f"port {port} does not answer ({type(error).__name__})")
        return _read_page(body)

    return ask


class _Page(msgspec.Struct):
    """What `/readyz` says: of one worker, or of each that a supervisor has."""

    ok: bool
    checks: dict[str, Check] = {}
    processes: tuple["_Page", ...] = ()
    message: str = ""

    def flat(self) -> list[Check]:
        own = [Check(ok=self.ok, message=self.message)] if self.message else []
        inner = [check for page in self.processes for check in page.flat()]
        return [*own, *self.checks.values(), *inner]


def _read_page(body: bytes) -> Check:
    try:
        page = msgspec.json.decode(body, type=_Page)
    except msgspec.DecodeError:  # a process that is killed may have sent its head already
        return Check(ok=False, message="hung up before the end of its answer")
    worst = _worst(page.flat())
    return worst if not worst.ok else Check(ok=page.ok)


def _worst(checks: Collection[Check]) -> Check:
    return next((check for check in checks if not check.ok), WELL)
