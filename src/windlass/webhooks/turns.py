"""Turns: who may send to an endpoint now, and when the others should ask again.

A delivery whose turn it is not does not wait in its slot: it is put off, each behind the one
before, so that a backlog spreads over the time that it will take and nobody asks in vain often.
"""

from typing import Final
from uuid import UUID

import msgspec

_TRIPS_AFTER: Final = 5
"""So many failures in a row, and one at a time tries whether it is up again."""
_FIRST_PAUSE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 900.0
_SHORTEST_WAIT_SECONDS: Final = 0.2
_SLOW_SECONDS: Final = 3.0
_SLOW_SHARE: Final = 4
_SUPPOSED_SECONDS: Final = 0.02
_WEIGHT: Final = 0.3


class _State(msgspec.Struct):
    """What this process knows of an endpoint; instants are monotonic."""

    running: dict[UUID, float] = msgspec.field(default_factory=dict)
    failures: int = 0
    held_until: float = 0.0
    usual_seconds: float = _SUPPOSED_SECONDS
    next_at: float = 0.0
    """When the last one that was put off will ask."""

    def seconds_each(self, now: float) -> float:
        """How long a delivery takes: as usual, or as long as one has been under way by now."""
        return max(self.usual_seconds, *(now - began for began in self.running.values()), 0.0)


class Turns:
    """Of this process. An endpoint that is slow gets a quarter of its turns, one that is down a
    single one now and then, so that neither holds the slots that others need."""

    def __init__(self) -> None:
        self._states: dict[UUID, _State] = {}

    def take(self, webhook_id: UUID, run: UUID, *, concurrency: int, now: float) -> float | None:
        """Take a turn, or tell after how many seconds to ask again. End it with `give_back`."""
        state = self._states.setdefault(webhook_id, _State())
        limit = self._limit(state, concurrency, now)
        if now >= state.held_until and len(state.running) < limit:
            state.running[run] = now
            return None
        pace = state.seconds_each(now) / limit
        state.next_at = max(state.next_at, state.held_until, now) + pace
        wait = state.next_at - now
        if wait > _LONGEST_PAUSE_SECONDS:  # who comes behind these asks with them
            state.next_at = max(state.held_until, now)
        return min(max(wait, _SHORTEST_WAIT_SECONDS), _LONGEST_PAUSE_SECONDS)

    def give_back(
        self, webhook_id: UUID, run: UUID, *, is_up: bool, hold_seconds: float, now: float
    ) -> None:
        """End a turn: whether the endpoint is up, and for how long it wants to be left alone."""
        state = self._states[webhook_id]
        taken = now - state.running.pop(run)
        state.usual_seconds += _WEIGHT * (taken - state.usual_seconds)
        if not is_up:
            state.failures += 1
            hold_seconds = max(hold_seconds, _pause_after(state.failures))
        elif state.failures:
            state.failures = 0
            state.held_until = state.next_at = 0.0  # it is up again
        if hold_seconds:
            state.held_until = max(state.held_until, now + hold_seconds)

    def abandon(self, webhook_id: UUID, run: UUID) -> None:
        """End a turn that told nothing: its run was stopped."""
        self._states[webhook_id].running.pop(run, None)

    @staticmethod
    def _limit(state: _State, concurrency: int, now: float) -> int:
        if state.failures >= _TRIPS_AFTER:
            return 1
        if state.seconds_each(now) > _SLOW_SECONDS:
            return max(1, concurrency // _SLOW_SHARE)
        return concurrency


def _pause_after(failures: int) -> float:
    if failures < _TRIPS_AFTER:
        return 0.0
    doublings = min(failures - _TRIPS_AFTER, 10)
    return min(_FIRST_PAUSE_SECONDS * 2.0**doublings, _LONGEST_PAUSE_SECONDS)
