"""Groups as they are shown: what of each waits and runs in a lane."""

import sqlite3
from collections import defaultdict
from typing import Final

from gantline.contract.clock import from_micros
from gantline.contract.flow import PLAIN, GroupPage, GroupState, group_number, read_position
from gantline.contract.job import DEFAULT_TENANT
from gantline.contract.query import at_most
from gantline.stores.ranks import RANKS
from gantline.stores.sqlite.rows import execute_in

_MOST_COUNTED: Final = 1000
_ALL_RANKS: Final = [rank for ranks in RANKS.values() for rank in ranks]

_LANE = "SELECT id FROM gantline_lane WHERE queue = ? AND job_type = ?"
_QUEUED = """
SELECT grp FROM gantline_turn WHERE lane = :lane AND rank = :rank AND grp > :after
  AND (:tenant IS NULL OR tenant = :tenant) ORDER BY grp LIMIT :limit
"""
# Reads all leases: there are as many as jobs run at once.
_RUNNING = """
SELECT grp, count(*), min(job_id) FROM gantline_lease
WHERE lane = :lane AND grp > :after AND (:name IS NULL OR tenant = :name) GROUP BY grp
"""
_COUNT = """
SELECT count(*), min(run_at), min(job_id) FROM (
    SELECT run_at, job_id FROM gantline_ready WHERE lane = ? AND rank = ? AND grp = ?
    ORDER BY run_at, job_id LIMIT ?)
"""
_NAMES = "SELECT id, tenant, group_name FROM gantline_job WHERE id IN {}"
_WAITING = f"""
SELECT count(*) FROM (
    SELECT 1 FROM gantline_ready
    WHERE lane = ({_LANE}) AND rank IN ({", ".join(map(str, _ALL_RANKS))}) AND grp = ? LIMIT ?)
"""  # noqa: S608  # constants only


def read_groups(
    connection: sqlite3.Connection,
    queue: str,
    job_type: str,
    *,
    tenant_id: str | None,
    limit: int,
    after: str,
    now: int,
) -> GroupPage:
    """Read a page of groups, by their numbers."""
    begin = read_position(after, 1)[0] if after else -1
    lane = connection.execute(_LANE, (queue, job_type)).fetchone()
    if lane is None or not limit:
        return GroupPage(())
    asked = {
        "lane": lane[0],
        "after": begin,
        "tenant": None if tenant_id is None else group_number(tenant_id, ""),
        "name": tenant_id,
        "limit": limit + 1,
    }
    running = {row[0]: row[1:] for row in connection.execute(_RUNNING, asked)}
    ranks: defaultdict[int, list[int]] = defaultdict(list)
    for rank in _ALL_RANKS:
        for (group,) in connection.execute(_QUEUED, asked | {"rank": rank}):
            ranks[group].append(rank)
    numbers = sorted({*running, *ranks})
    found = [
        _Shown(connection, lane[0], group, ranks[group], running.get(group))
        for group in numbers[:limit]
    ]
    samples = [one.sample for one in found if one.sample is not None]
    names = {row[0]: row[1:] for row in execute_in(connection, _NAMES, samples)}
    items = [one.state(names, now) for one in found]
    more = str(numbers[limit - 1]) if len(numbers) > limit else ""
    return GroupPage(tuple(item for item in items if item is not None), more)


class _Shown:
    """What a group has waiting and running, and one of its jobs, which knows its name."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        lane: int,
        group: int,
        ranks: list[int],
        running: tuple[int, bytes] | None,
    ) -> None:
        self._group = group
        self._running = running[0] if running else 0
        self.sample = running[1] if running else None
        self._waiting = 0
        self._oldest: int | None = None
        for rank in ranks:
            values = (lane, rank, group, _MOST_COUNTED - self._waiting)
            jobs, oldest, job_id = connection.execute(_COUNT, values).fetchone()
            self._waiting += jobs
            if jobs:
                self.sample = self.sample or job_id
                self._oldest = oldest if self._oldest is None else min(oldest, self._oldest)

    def state(self, names: dict[bytes, tuple[str, str]], now: int) -> GroupState | None:
        if self.sample is None:
            return None  # a turn too many
        name = names.get(self.sample)
        if self._group == PLAIN:
            name = (DEFAULT_TENANT, "")
        if name is None:
            return None  # its job was removed by hand
        is_due = self._oldest is not None and self._oldest <= now
        return GroupState(
            tenant_id=name[0],
            group=name[1],
            waiting=self._waiting,
            running=self._running,
            oldest_due_at=from_micros(self._oldest) if is_due and self._oldest else None,
        )


def count_waiting(
    connection: sqlite3.Connection, queue: str, job_type: str, group: int, most: int
) -> int:
    """Count the Queued jobs of a group in a lane, up to so many."""
    row = connection.execute(_WAITING, (queue, job_type, group, at_most(most))).fetchone()
    return int(row[0])
