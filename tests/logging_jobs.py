"""Jobs that log, of every kind; a process handler must be importable by its child."""

import asyncio
import logging
import threading

from gantline import Context, JobGroup, Permanent

PAYLOAD_SECRET = "the secret of the payload"  # noqa: S105  # what must not be logged

group = JobGroup()
log = logging.getLogger("shop")


def begin_and_go_on() -> None:
    log.info("it begins")
    log.warning("it goes on", extra={"step": 2, "thing": object()})


def fail() -> None:
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        log.exception("it ends")
    raise Permanent("BROKEN", "for good")


@group.job("on-the-loop")
async def on_the_loop(secret: str) -> None:
    begin_and_go_on()
    await asyncio.sleep(0)
    fail()


@group.job("in-a-thread")
def in_a_thread(secret: str) -> None:
    begin_and_go_on()
    fail()


@group.job("in-a-process", run_in="process")
def in_a_process(secret: str) -> None:
    thread = threading.Thread(target=begin_and_go_on)
    thread.start()
    thread.join()
    fail()


@group.job("by-its-context")
async def by_its_context(secret: str, ctx: Context) -> None:
    ctx.logger.info("it begins")
    log.warning("it goes on", extra={"step": 2})
    fail()
