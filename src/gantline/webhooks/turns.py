"""Turns: who may send to an endpoint now, and when the others should ask again.

A delivery whose turn it is not does not wait in its slot: it is put off, each behind the one
before, so that a backlog spreads over the time that it will take and nobody asks in vain often.
"""

from typing import Final
from uuid import UUID

import msgspec

from gantline.webhooks.shares import SLOW_SECONDS, Shares, half

_TRIPS_AFTER: Final = 5
"""So many failures in a row, and one at a time tries whether it is up again."""
_FIRST_PAUSE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 900.0
_SHORTEST_WAIT_SECONDS: Final = 0.2
_SLOW_SHARE: Final = 4
_SUPPOSED_SECONDS: Final = 0.02
_WEIGHT: Final = 0.3
_REMEMBERED_SECONDS: Final = 2 * _LONGEST_PAUSE_SECONDS


class _State(msgspec.Struct):
    """What this process knows of an endpoint; instants are monotonic."""

    asked_at: float
    running: dict[UUID, float] = msgspec.field(default_factory=dict)
    has_proved: bool = False
    """Whether it answered quickly the last time."""
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
        self.shares = Shares()
        self._states: dict[UUID, _State] = {}
        self._forgot_at = 0.0

    def take(
        self, tenant_id: str, webhook_id: UUID, run: UUID, *, concurrency: int, now: float
    ) -> float | None:
        """Take a turn, or tell after how many seconds to ask again. End it with `give_back`."""
        state = self._state(webhook_id, now)
        limit = self._limit(state, concurrency, now)
        if now >= state.held_until and len(state.running) < limit:
            return self._enter(tenant_id, state, run, now)
        pace = state.seconds_each(now) / limit
        state.next_at = max(state.next_at, state.held_until, now) + pace
        wait = state.next_at - now
        if wait > _LONGEST_PAUSE_SECONDS:  # who comes behind these asks with them
            state.next_at = max(state.held_until, now)
        return min(max(wait, _SHORTEST_WAIT_SECONDS), _LONGEST_PAUSE_SECONDS)

    def take_for_test(
        self, tenant_id: str, webhook_id: UUID, run: UUID, now: float
    ) -> float | None:
        """As `take`, also where the endpoint is left alone: somebody waits for the answer."""
        return self._enter(tenant_id, self._state(webhook_id, now), run, now)

    def give_back(
        self,
        tenant_id: str,
        webhook_id: UUID,
        run: UUID,
        *,
        is_up: bool,
        hold_seconds: float,
        now: float,
    ) -> None:
        """End a turn: whether the endpoint is up, and for how long it wants to be left alone."""
        self.shares.give_back(tenant_id, run, now=now)
        state = self._states[webhook_id]
        taken = now - state.running.pop(run)
        state.usual_seconds += _WEIGHT * (taken - state.usual_seconds)
        state.has_proved = is_up and taken <= SLOW_SECONDS
        if not is_up:
            state.failures += 1
            hold_seconds = max(hold_seconds, _pause_after(state.failures))
        elif state.failures:
            state.failures = 0
            state.held_until = state.next_at = 0.0  # it is up again
        if hold_seconds:
            state.held_until = max(state.held_until, now + hold_seconds)

    def abandon(self, tenant_id: str, webhook_id: UUID, run: UUID, *, now: float) -> None:
        """End a turn that told nothing: its run was stopped."""
        self.shares.give_back(tenant_id, run, now=now)
        self._states[webhook_id].running.pop(run)

    def _enter(self, tenant_id: str, state: _State, run: UUID, now: float) -> float | None:
        is_proven = state.has_proved and state.seconds_each(now) <= SLOW_SECONDS
        wait = self.shares.take(tenant_id, run, is_proven=is_proven, now=now)
        if wait is None:
            state.running[run] = now
        return wait

    def _state(self, webhook_id: UUID, now: float) -> _State:
        if now - self._forgot_at > _REMEMBERED_SECONDS:
            self._forgot_at = now
            self._forget(before=now - _REMEMBERED_SECONDS)
        state = self._states.setdefault(webhook_id, _State(now))
        state.asked_at = now
        return state

    def _forget(self, *, before: float) -> None:
        """Endpoints for which there is nothing any more: most of them were deleted."""
        self.shares.forget(before=before)
        for webhook_id in [
            one for one, it in self._states.items() if not it.running and it.asked_at < before
        ]:
            del self._states[webhook_id]

    def _limit(self, state: _State, concurrency: int, now: float) -> int:
        concurrency = min(concurrency, half(self.shares.slots))
        if state.failures >= _TRIPS_AFTER:
            return 1
        if state.seconds_each(now) > SLOW_SECONDS:
            return max(1, concurrency // _SLOW_SHARE)
        return concurrency


def _pause_after(failures: int) -> float:
    if failures < _TRIPS_AFTER:
        return 0.0
    doublings = min(failures - _TRIPS_AFTER, 10)
    return min(_FIRST_PAUSE_SECONDS * 2.0**doublings, _LONGEST_PAUSE_SECONDS)
