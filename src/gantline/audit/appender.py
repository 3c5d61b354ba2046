"""The appender: puts drafts at the end of their tenants' chains, all that wait in one write."""

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from gantline.audit.chain import MOST_IN_A_BLOCK, AuditChains, behind, write_of
from gantline.audit.event import AuditEvent, Draft, sealed
from gantline.contract.errors import GantlineError, StoreBusy, StoreUnavailable
from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict
from gantline.contract.store import JobStore
from gantline.manager.batcher import Batcher

_ROUNDS: Final = 100
_PAUSE_BETWEEN_SECONDS: Final = 0.005
_TURNS_AT_ONCE: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.001
_LONGEST_PAUSE_SECONDS: Final = 0.02
_TRIES: Final = 3
_MOST_WAITING: Final = 10_000

_Asked = tuple[str, Draft]


class Appender:
    """Append to chains. What has been appended is durable when it is answered.

    Each block is written under the name that only the next block can have, so of two writers that
    saw the same head one loses, reads the new head and tries again.
    """

    def __init__(self, store: JobStore, *, most_waiting: int = _MOST_WAITING) -> None:
        self._store = store
        self._chains = AuditChains(store)
        self._most_waiting = most_waiting
        self._waiting = 0
        self._ended_at = 0.0
        self._batchers: dict[
            asyncio.AbstractEventLoop, Batcher[_Asked, AuditEvent | GantlineError]
        ] = {}

    async def append(self, tenant_id: str, draft: Draft) -> AuditEvent:
        """Append one; raise StoreError where that cannot be done, or cannot be told."""
        if self._waiting >= self._most_waiting:
            raise StoreUnavailable(
                f"{self._waiting} entries wait to be audited already.", next_step="Try again later."
            )
        self._waiting += 1
        try:
            answer = await self._batcher().add((tenant_id, draft))
        finally:
            self._waiting -= 1
        if isinstance(answer, GantlineError):
            raise answer
        return answer

    async def drained(self) -> None:
        """Wait until all that was handed in has been answered."""
        batcher = self._batchers.pop(asyncio.get_running_loop(), None)
        if batcher is not None:
            await batcher.drained()

    def _batcher(self) -> Batcher[_Asked, AuditEvent | GantlineError]:
        loop = asyncio.get_running_loop()
        if loop not in self._batchers:
            self._batchers[loop] = Batcher(self._append, most=MOST_IN_A_BLOCK)
        return self._batchers[loop]

    async def _append(self, asked: Sequence[_Asked]) -> list[AuditEvent | GantlineError]:
        """One block for each tenant; what goes wrong with one chain is not the others' trouble."""
        await self._let_others()
        drafts: dict[str, list[Draft]] = {}
        for tenant_id, draft in asked:
            drafts.setdefault(tenant_id, []).append(draft)
        done: dict[str, list[AuditEvent] | GantlineError] = {}
        for turn in range(_ROUNDS):
            left = {tenant: wanted for tenant, wanted in drafts.items() if tenant not in done}
            if not left:
                break
            if turn:
                await asyncio.sleep(_pause(turn) if turn > _TURNS_AT_ONCE else 0)
            done |= await self._try(left)
        self._ended_at = asyncio.get_running_loop().time()
        nobody: GantlineError = StoreBusy(
            "Others kept writing to the audit chain.", next_step="Try again."
        )
        answers = {
            tenant: iter(_answers(done.get(tenant, nobody), wanted))
            for tenant, wanted in drafts.items()
        }
        return [next(answers[tenant]) for tenant, _ in asked]

    async def _let_others(self) -> None:
        """Who writes block after block without a pause leaves other processes no chance."""
        since = asyncio.get_running_loop().time() - self._ended_at
        if 0 <= since < _PAUSE_BETWEEN_SECONDS:
            await asyncio.sleep(_PAUSE_BETWEEN_SECONDS - since)

    async def _try(
        self, drafts: dict[str, list[Draft]]
    ) -> dict[str, list[AuditEvent] | GantlineError]:
        """Write a block behind each head; leave out whose place another has taken."""
        done: dict[str, list[AuditEvent] | GantlineError] = {}
        blocks: dict[str, list[AuditEvent]] = {}
        now = await self._store.ping()
        for tenant_id, wanted in drafts.items():
            try:
                blocks[tenant_id] = await self._block(tenant_id, wanted, now)
            except GantlineError as error:
                done[tenant_id] = error
        try:
            answers = await self._write([write_of(events) for events in blocks.values()])
        except GantlineError as error:
            return done | dict.fromkeys(blocks, error)
        for (tenant_id, events), answer in zip(blocks.items(), answers, strict=True):
            if isinstance(answer, Applied):
                done[tenant_id] = events
        return done

    async def _block(self, tenant_id: str, drafts: list[Draft], now: datetime) -> list[AuditEvent]:
        # Read each time: behind one that was remembered a prune could have made room again.
        head = await self._chains.head(tenant_id)
        events: list[AuditEvent] = []
        for draft in drafts:
            version, previous_hash = behind(head)
            head = sealed(
                draft,
                tenant_id=tenant_id,
                version=version,
                time=max(now, head.time) if head else now,
                previous_hash=previous_hash,
            )
            events.append(head)
        return events

    async def _write(self, writes: list[RecordWrite]) -> list[Applied | Conflict]:
        """A write whose answer was lost is made again: it counts as applied if it was."""
        for _ in range(_TRIES - 1):
            try:
                return await self._store.write_records(writes)
            except StoreUnavailable:
                continue
        return await self._store.write_records(writes)


def _pause(turn: int) -> float:
    """Time apart from the others; longer while many lose, and none at first: who waits while
    another goes on without a pause, loses again."""
    longest = min(_FIRST_PAUSE_SECONDS * 2.0 ** (turn - _TURNS_AT_ONCE), _LONGEST_PAUSE_SECONDS)
    return random.random() * longest  # noqa: S311  # nobody gains by guessing it


def _answers(
    came: list[AuditEvent] | GantlineError, drafts: list[Draft]
) -> Sequence[AuditEvent | GantlineError]:
    return [came] * len(drafts) if isinstance(came, GantlineError) else came
