"""Faults, put around every call of a store."""

from typing import Any

from gantline.contract.store import JobStore
from gantline.proof.intercepting import AnswerLost, Around, intercepted
from gantline.proof.intercepting import MadeCall as Call

__all__ = ["AnswerLost", "Around", "Call", "Crash", "CrashPoint", "intercepted", "losing_answers"]


class Crash(BaseException):
    """The process died here. Nothing may catch it but the test."""


def losing_answers(store: JobStore) -> JobStore:
    """Do everything twice: the first answer of each call is lost, as if the caller tried again."""

    async def around(verb: str, call: Call) -> Any:
        await call()
        return await call()

    return intercepted(store, around)


class CrashPoint:
    """Let the process die right before or right after its n-th store call, counted from 1."""

    def __init__(self, *, at: int, after: bool) -> None:
        self._left = at
        self._after = after
        self.reached = False

    def wrap(self, store: JobStore) -> JobStore:
        return intercepted(store, self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        self._left -= 1
        if self._left != 0:
            return await call()
        self.reached = True
        if self._after:
            await call()
        raise Crash(f"{'after' if self._after else 'before'} {verb}")
