"""Rotation: which groups of a queue this process knows, and whose turn it is.

Only this process orders them so; a table would be written by every claim. What others know is read
page by page, and new groups are found by the claim itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from gantline.contract.flow import PLAIN
from gantline.runtime import monotonic
from gantline.stores.ranks import PRIORITIES

# The fewest turns that a claim looks at, if it has slots for so many.
_FEW_TURNS: Final = 8
# Beyond, groups that were served are no longer kept: pages bring them again.
_MOST_KNOWN: Final = 20_000
# For so long after the last group, claims expect more.
_EXPECTED_SECONDS: Final = 1.0
NONE_DUE, TO_COME, SERVED, FULL, USED_UP, SHUT, SHUT_TO_PLAIN = range(7)
"""How a claim leaves a range: nothing is due; others came first; it has more, and was served or has
no room; it was served and has no more. And a lane of which it can start no more, or no plain jobs.
"""

Lanes = tuple[int, ...]


class Turn(NamedTuple):
    """A group of a rank, its lanes, and how many jobs it may give at first.

    And how many its tenant may give, and new groups of the tenant before the others.
    """

    rank: int
    tenant: int
    group: int
    lanes: Lanes
    each: int
    slots: int
    new: int


class Left(NamedTuple):
    """How a claim has left a range."""

    lane: int
    rank: int
    tenant: int
    group: int
    state: int


class Rotation:
    """The groups of one queue, by rank and tenant: who was served last is at the end.

    Plain jobs are a group that is always known, since they have no turns in the store.
    """

    def __init__(self, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic = monotonic
        self._ranks: list[dict[int, dict[int, Lanes]]] = [
            {PLAIN: {PLAIN: ()}} for _ in range(PRIORITIES)
        ]
        self._known = 0
        self._expected_until = 0.0
        self._new_are_next = True
        self._new_were_last: set[tuple[int, int]] = set()
        self.new_after = -1
        """After which tenant new ones come next, where there are many."""
        self.after = -1
        """After which tenant the next page of groups begins."""
        self.was_full = False
        """Whether the last claim was."""

    @property
    def is_used(self) -> bool:
        """Whether there are groups, or were a moment ago."""
        return self._known > 0 or self._monotonic() < self._expected_until

    def expect(self) -> None:
        """Say that there are groups."""
        self._expected_until = self._monotonic() + _EXPECTED_SECONDS

    def most_turns(self, limit: int) -> int:
        """How many turns a claim looks at: fewer, and more of each, while all claims are full."""
        return min(limit, max(_FEW_TURNS, limit // 5)) if self.was_full else limit

    def slots_of_new(self, limit: int) -> int:
        """How many slots new groups may have while others wait; of claims of one every second."""
        if not self._known and not any(tenants[PLAIN][PLAIN] for tenants in self._ranks):
            return limit
        if limit > 1:
            return limit // 2
        self._new_are_next = not self._new_are_next
        return int(self._new_are_next)

    def deal(
        self,
        limit: int,
        lanes: Sequence[int],
        *,
        most: int,
        except_for: Collection[tuple[int, int]] = (),
    ) -> list[Turn]:
        """Deal out the slots of a claim in each rank: to tenants, and of each to its groups.

        `except_for`: groups by rank that were looked at already.
        """
        among = set(lanes)
        return [
            turn
            for rank in range(PRIORITIES)
            for turn in self._deal_rank(rank, limit, among, most, except_for)
        ]

    def _deal_rank(
        self,
        rank: int,
        limit: int,
        among: set[int],
        most: int,
        except_for: Collection[tuple[int, int]],
    ) -> Iterator[Turn]:
        tenants: list[int] = []
        passed: list[int] = []
        plain_at = -1
        for tenant, groups in self._ranks[rank].items():
            if len(tenants) == most:
                break
            # Plain jobs are looked for even if there were none: it is known only afterwards.
            if tenant == PLAIN and among.isdisjoint(groups[PLAIN]):
                plain_at = len(tenants)
            if next(_waiting(rank, groups, among, except_for), None) is not None:
                tenants.append(tenant)
            elif tenant != PLAIN and not except_for:
                passed.append(tenant)
        for (
            tenant
        ) in passed:  # of types that are not asked for: the next claim has not to pass them
            self._ranks[rank][tenant] = self._ranks[rank].pop(tenant)
        if plain_at < 0 and among.isdisjoint(self._ranks[rank][PLAIN][PLAIN]):
            plain_at = len(tenants)
        if (rank, PLAIN) in except_for:
            plain_at = -1
        count = len(tenants)
        for index, tenant in enumerate(tenants):
            slots = max(1, limit // count + (index < limit % count))
            new = slots // 2 if slots > 1 else int((rank, tenant) not in self._new_were_last)
            waiting = _waiting(rank, self._ranks[rank][tenant], among, except_for)
            groups_now = list(islice(waiting, min(slots, max(1, most // count))))
            if index == plain_at and tenant == PLAIN:
                each = max(1, slots // (len(groups_now) + 1))
                yield Turn(rank, PLAIN, PLAIN, tuple(among), each, slots, new)
            elif index == plain_at:
                yield _idle_plain(rank, limit // (count + 1), among)
            for place, (group, known) in enumerate(groups_now):
                each = slots // len(groups_now) + (place < slots % len(groups_now))
                yield Turn(rank, tenant, group, known, each, slots, new)
        if plain_at == count:
            yield _idle_plain(rank, limit // (count + 1), among)

    def knows_others(self, lanes: Sequence[int], looked_at: Collection[tuple[int, int]]) -> bool:
        """Whether there are groups in these lanes beside those that were looked at."""
        among = set(lanes)
        return any(
            (rank, group) not in looked_at and not among.isdisjoint(known)
            for rank, tenants in enumerate(self._ranks)
            for groups in tenants.values()
            for group, known in groups.items()
        )

    def update(self, left: Iterable[Left]) -> None:
        """Note how a claim has left its ranges."""
        moved: list[Left] = []
        for one in left:
            groups = self._ranks[one.rank].get(one.tenant, {})
            known = groups.get(one.group, ())
            if one.state in (NONE_DUE, USED_UP):
                if one.lane in known:
                    self._set(one, tuple(lane for lane in known if lane != one.lane))
            elif one.lane not in known:
                self._set(one, (*known, one.lane))
            if one.state in (SERVED, FULL, USED_UP):
                moved.append(one)
        # The full ones first: they were not served.
        for one in sorted(moved, key=lambda one: one.state != FULL):
            self._put_last(one)

    def _set(self, one: Left, lanes: Lanes) -> None:
        tenants = self._ranks[one.rank]
        groups = tenants.setdefault(one.tenant, {})
        if one.group == PLAIN:
            groups[PLAIN] = lanes
            return
        if lanes:
            self._known += one.group not in groups
            groups[one.group] = lanes
            self.expect()
            return
        del groups[one.group]
        self._known -= 1
        if not groups:
            del tenants[one.tenant]
            self._new_were_last.discard((one.rank, one.tenant))

    def _put_last(self, one: Left) -> None:
        tenants = self._ranks[one.rank]
        groups = tenants.get(one.tenant)
        if groups is None:
            return
        tenants[one.tenant] = tenants.pop(one.tenant)
        if one.state != FULL:
            self._new_were_last ^= {(one.rank, one.tenant)}
        if one.group in groups:
            groups[one.group] = groups.pop(one.group)
            if self._known > _MOST_KNOWN and one.group != PLAIN:
                self._set(one, ())


def _waiting(
    rank: int,
    groups: dict[int, Lanes],
    among: set[int],
    except_for: Collection[tuple[int, int]],
) -> Iterator[tuple[int, Lanes]]:
    """Give the groups of a tenant of which something waits in these lanes, in their order."""
    for group, known in groups.items():
        if (rank, group) not in except_for and not among.isdisjoint(known):
            # Plain jobs have no turns, so they may be in any lane.
            yield group, tuple(one for one in among if group == PLAIN or one in known)


def _idle_plain(rank: int, slots: int, among: set[int]) -> Turn:
    slots = max(1, slots)
    return Turn(rank, PLAIN, PLAIN, tuple(among), slots, slots, slots)
