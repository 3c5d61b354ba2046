"""Turns: in which order the groups of a queue and rank give their jobs."""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from gantline.contract.job import DEFAULT_TENANT
from gantline.stores.memory.entry import Entry, Group

# An item in the heap of a type. It stays there when its job changes.
# The id is there as a number too, since a heap compares it often, and UUIDs compare in Python.
Waiting = tuple[datetime, int, int, UUID]
Heaps = dict[str, list[Waiting]]
"""What waits of a group, by type."""

PLAIN: Group = (DEFAULT_TENANT, "")


Member = TypeVar("Member")


class Rotation(Generic[Member]):
    """Members in turns: who was served last goes to the end, who is new goes first.

    While others wait, no more than every second turn is of a new one.
    """

    def __init__(self) -> None:
        self._new: dict[str, Member] = {}
        self._served: dict[str, Member] = {}
        self._last_was_new = False

    def __len__(self) -> int:
        return len(self._new) + len(self._served)

    def __iter__(self) -> Iterator[tuple[str, Member]]:
        yield from self._new.items()
        yield from self._served.items()

    def __getitem__(self, name: str) -> Member:
        return self._new[name] if name in self._new else self._served[name]

    def get(self, name: str, make: Callable[[], Member]) -> Member:
        """A member, which is made and new if it is not there."""
        if name in self._served:
            return self._served[name]
        if name not in self._new:
            self._new[name] = make()
        return self._new[name]

    def add_as_served(self, name: str, member: Member) -> None:
        self._served[name] = member

    def remove(self, name: str) -> None:
        self._new.pop(name, None)
        self._served.pop(name, None)

    def deal(self, draw: Callable[[str, Member], Iterator[Entry]]) -> Iterator[Entry]:
        """Give a job of each member in turns, until `draw` has no more of any."""
        draws: dict[str, Iterator[Entry]] = {}
        new, served = deque(self._new), deque(self._served)
        had_one: deque[str] = deque()
        while new or served or had_one:
            if not new and not served:
                served, had_one = had_one, served
            is_new = bool(new) and not (served and self._last_was_new)
            name = (new if is_new else served).popleft()
            if name not in draws:
                draws[name] = draw(name, self[name])
            entry = next(draws[name], None)
            if entry is None:
                continue  # nothing of it may start: it keeps its place
            self._last_was_new = is_new
            self._put_last(name)
            had_one.append(name)
            yield entry

    def _put_last(self, name: str) -> None:
        member = self._new.pop(name) if name in self._new else self._served.pop(name)
        self._served[name] = member


class Turns:
    """The tenants of a queue and rank, and the groups of each. Plain jobs are always among them."""

    def __init__(self, plain: Heaps) -> None:
        self._tenants: Rotation[Rotation[Heaps]] = Rotation()
        tenant, group = PLAIN
        default: Rotation[Heaps] = Rotation()
        default.add_as_served(group, plain)
        self._tenants.add_as_served(tenant, default)

    @property
    def only_plain(self) -> bool:
        return len(self._tenants) == 1 and all(len(groups) == 1 for _, groups in self._tenants)

    def __iter__(self) -> Iterator[tuple[Group, Heaps]]:
        for tenant, groups in self._tenants:
            for name, heaps in groups:
                yield (tenant, name), heaps

    def heaps(self, group: Group) -> Heaps:
        """What waits of a group, which is new if it is not known."""
        tenant, name = group
        groups: Rotation[Heaps] = self._tenants.get(tenant, Rotation)
        return groups.get(name, dict)

    def deal(self, draw: Callable[[Group, Heaps], Iterator[Entry]]) -> Iterator[Entry]:
        """Give jobs in turns, until `draw` has no more of any group."""

        def draw_group(group: Group, heaps: Heaps) -> Iterator[Entry]:
            yield from draw(group, heaps)
            self._remove_if_empty(group, heaps)

        def draw_tenant(tenant: str, groups: Rotation[Heaps]) -> Iterator[Entry]:
            return groups.deal(lambda name, heaps: draw_group((tenant, name), heaps))

        return self._tenants.deal(draw_tenant)

    def remove_empty(self) -> None:
        for group, heaps in list(self):
            self._remove_if_empty(group, heaps)

    def _remove_if_empty(self, group: Group, heaps: Heaps) -> None:
        if group == PLAIN or any(heaps.values()):
            return
        tenant, name = group
        groups: Rotation[Heaps] = self._tenants.get(tenant, Rotation)
        groups.remove(name)
        if not len(groups):
            self._tenants.remove(tenant)
