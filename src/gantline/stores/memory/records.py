"""Records and leadership."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gantline.contract.clock import later
from gantline.contract.records import Record, RecordWrite, is_repeat, write_is_allowed
from gantline.contract.results import Applied, Conflict, Leadership


class Records:
    """Records, and the leaders of roles. The owner of this object holds the lock."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Record] = {}
        self.last_version = 0
        self.leaders: dict[str, tuple[str, Leadership]] = {}

    # -- records ----------------------------------------------------------------------------------

    def read(self, namespace: str, prefix: str, after: str, now: datetime) -> list[Record]:
        keys = sorted(
            key
            for space, key in self.records
            if space == namespace and key.startswith(prefix) and key > after
        )
        found = (self.current(namespace, key, now) for key in keys)
        return [record for record in found if record]

    def allows(self, write: RecordWrite, now: datetime) -> bool:
        return write_is_allowed(write, self.current(write.namespace, write.key, now))

    def write_checked(
        self, writes: Sequence[RecordWrite], now: datetime
    ) -> list[Applied | Conflict]:
        return [
            Applied(self.write(write, now))
            if self.allows(write, now)
            else Conflict(by=f"{write.namespace}/{write.key}")
            for write in writes
        ]

    def write(self, write: RecordWrite, now: datetime) -> int:
        """Write what the caller has checked; return the new version."""
        current = self.current(write.namespace, write.key, now)
        if is_repeat(write, current):
            return current.version if current else 0
        if write.value is None:
            self.records.pop((write.namespace, write.key), None)
            return 0
        self.last_version += 1
        until = later(now, write.time_to_live) if write.time_to_live is not None else None
        replaced = current.version if current else 0
        self.records[(write.namespace, write.key)] = Record(
            write.namespace, write.key, write.value, self.last_version, until, replaced
        )
        return self.last_version

    def prune(self, limit: int, now: datetime) -> int:
        over = [name for name, record in self.records.items() if _has_expired(record, now)]
        for name in over[:limit]:
            del self.records[name]
        return len(over[:limit])

    def current(self, namespace: str, key: str, now: datetime) -> Record | None:
        record = self.records.get((namespace, key))
        return record if record and not _has_expired(record, now) else None

    # -- leadership -------------------------------------------------------------------------------

    def lead(self, role: str, owner: str, lease: timedelta, now: datetime) -> Leadership | None:
        leader, held = self.leaders.get(role, ("", Leadership(0, now)))
        is_free = not now < held.until <= later(now, lease)
        if leader != owner and not is_free:
            return None
        term = held.term if leader == owner and not is_free else held.term + 1
        leadership = Leadership(term, later(now, lease))
        self.leaders[role] = (owner, leadership)
        return leadership

    def resign(self, role: str, owner: str, term: int, now: datetime) -> None:
        leader, held = self.leaders.get(role, ("", Leadership(0, now)))
        if (leader, held.term) == (owner, term):
            self.leaders[role] = ("", Leadership(term, now))


def _has_expired(record: Record, now: datetime) -> bool:
    return record.expires_at is not None and record.expires_at <= now
