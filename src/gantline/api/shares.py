"""Shares: how much of a process one principal and one tenant may have at a time.

What takes memory or a connection is counted, and refused beyond a share (Shares). What takes the
time of the event loop waits for its turn (Turns): however much one tenant asks for, only so many of
its requests go on at a time, and the others' wait for those alone.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, NamedTuple

from gantline.api.problems import ApiCode, Refused
from gantline.auth.principal import Principal
from gantline.contract.bounds import CheckedStruct, Count
from gantline.runtime import monotonic

# For how long a process that had to refuse somebody is not ready.
_OVERLOADED_SECONDS: Final = 5.0
# A tenant who asks now and then is there between two requests, too.
_REMEMBERED_SECONDS: Final = 1.0


class Share(CheckedStruct, frozen=True, kw_only=True):
    """How many there may be at once: of one principal, of one tenant, and in this process."""

    of_principal: Count
    of_tenant: Count
    in_process: Count


class Holder(NamedTuple):
    """For whom something is counted."""

    tenant_id: str
    principal: str | None = None
    """None for the tenant as a whole."""

    @classmethod
    def of(cls, principal: Principal) -> "Holder":
        return cls(principal.tenant_id, principal.id)

    @classmethod
    def unknown(cls, address: str) -> "Holder":
        """A caller who is not known yet, by the address that he calls from.

        Many callers may have one address, that of a proxy: so it counts as a tenant.
        """
        return cls(f"\n{address}")  # no tenant has such a name


class Shares:
    """Who has how many of one kind of thing."""

    def __init__(
        self,
        share: Share,
        what: str,
        *,
        code: str = ApiCode.TOO_MANY_AT_ONCE,
        code_of_process: str = ApiCode.OVERLOADED,
    ) -> None:
        """`what` they are, for people; the codes are those of refusals."""
        self._share = share
        self._what = what
        self._code = code
        self._code_of_process = code_of_process
        self._counts: dict[Holder, int] = {}
        self._in_process = 0
        self._refused_at: float | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether the process has no room for anybody, or had none a moment ago."""
        if self._in_process >= self._share.in_process:
            return True
        if self._refused_at is None:
            return False
        return asyncio.get_running_loop().time() - self._refused_at < _OVERLOADED_SECONDS

    def take(self, holder: Holder) -> None:
        """Count one more; raise Refused where there are too many."""
        share, tenant = self._share, Holder(holder.tenant_id)
        of_one, of_tenant = self._counts.get(holder, 0), self._counts.get(tenant, 0)
        if holder.principal is not None and of_one >= share.of_principal:
            raise self._too_many("You have", share.of_principal)
        if of_tenant >= share.of_tenant:
            raise self._too_many("Your tenant has", share.of_tenant)
        if self._in_process >= share.in_process:
            self._refused_at = asyncio.get_running_loop().time()
            detail = f"This server has {share.in_process} {self._what}, and takes no more."
            raise Refused(self._code_of_process, detail)
        self._counts[holder] = of_one + 1
        self._counts[tenant] = of_tenant + 1
        self._in_process += 1

    def give_back(self, holder: Holder) -> None:
        """Count one less, of those that were taken."""
        self._in_process -= 1
        for one in {holder, Holder(holder.tenant_id)}:
            if self._counts[one] > 1:
                self._counts[one] -= 1
            else:
                del self._counts[one]

    @contextmanager
    def taken(self, holder: Holder) -> Iterator[None]:
        """Count one more for as long as the block lasts."""
        self.take(holder)
        try:
            yield
        finally:
            self.give_back(holder)

    def _too_many(self, who: str, most: int) -> Refused:
        return Refused(self._code, f"{who} {most} {self._what} here, and may not have more.")


class _Line:
    """The requests of one tenant: how many go on, and those that wait."""

    __slots__ = ("going_on", "left_at", "waiting")

    def __init__(self, now: float) -> None:
        self.going_on = 0
        self.left_at = now
        self.waiting = deque[asyncio.Future[None]]()


class Turns:
    """Lets so many of each tenant go on at a time; the others wait, and go on in order.

    Fewer of each while other tenants ask as well, or did a moment ago: at every step that a request
    takes on the event loop, it waits for one step of all that go on.
    """

    def __init__(
        self,
        most: int,
        *,
        beside_others: int | None = None,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self._most = most
        self._beside_others = most if beside_others is None else min(most, beside_others)
        self._monotonic = monotonic
        self._lines: dict[str, _Line] = {}
        self._forget_at = 0.0

    async def take(self, tenant_id: str) -> None:
        line = self._line(tenant_id)
        if line.going_on < self._most_of_each and not line.waiting:
            line.going_on += 1
            return
        turn = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                with suppress(ValueError):
                    line.waiting.remove(turn)
            else:
                self.give_back(tenant_id)
            raise

    def give_back(self, tenant_id: str) -> None:
        line = self._lines[tenant_id]
        line.going_on -= 1
        line.left_at = self._monotonic()
        while line.waiting and line.going_on < self._most_of_each:
            turn = line.waiting.popleft()
            if not turn.done():
                line.going_on += 1
                turn.set_result(None)

    @property
    def _most_of_each(self) -> int:
        return self._most if len(self._lines) == 1 else self._beside_others

    def _line(self, tenant_id: str) -> _Line:
        now = self._monotonic()
        if now >= self._forget_at:
            self._forget_at = now + _REMEMBERED_SECONDS
            self._lines = {
                name: line
                for name, line in self._lines.items()
                if line.going_on or line.waiting or now - line.left_at < _REMEMBERED_SECONDS
            }
        if (line := self._lines.get(tenant_id)) is None:
            line = self._lines[tenant_id] = _Line(now)
        return line

    @asynccontextmanager
    async def of(self, tenant_id: str) -> AsyncIterator[None]:
        """Go on when it is the tenant's turn."""
        await self.take(tenant_id)
        try:
            yield
        finally:
            self.give_back(tenant_id)


class Turn:
    """The turn of one request, which may end before the request does: it waits for a job then."""

    def __init__(self, turns: Turns, tenant_id: str) -> None:
        self._turns = turns
        self._tenant_id = tenant_id
        self._is_taken = False

    async def begin(self) -> None:
        await self._turns.take(self._tenant_id)
        self._is_taken = True

    def end(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._turns.give_back(self._tenant_id)
