"""Turns: added with every job of a group that is Queued, in the same transaction."""

from collections.abc import Iterable
from typing import NamedTuple

from gantline.contract.flow import PLAIN
from gantline.stores.postgres.arrays import Bigints, Integers
from gantline.stores.postgres.sql import Sql
from gantline.stores.ranks import PRIORITIES

_ADD = """
INSERT INTO gantline.turn (lane, rank, tenant, grp, at) SELECT * FROM unnest(%s, %s, %s, %s, %s)
"""


class NewTurn(NamedTuple):
    """Jobs of a group may be due from then on."""

    lane: int
    rank: int
    tenant: int
    group: int
    at: int


async def add_turns(sql: Sql, turns: Iterable[NewTurn]) -> None:
    """Add the earliest of each group. Plain jobs and suspects are found without."""
    first: dict[tuple[int, int, int], NewTurn] = {}
    for turn in turns:
        key = (turn.lane, turn.rank, turn.group)
        if turn.group != PLAIN and turn.rank < PRIORITIES:
            first[key] = min(turn, first.get(key, turn))
    if first:
        lanes, ranks, tenants, groups, ats = zip(*first.values(), strict=True)
        await sql.run(
            _ADD, Bigints(lanes), Integers(ranks), Bigints(tenants), Bigints(groups), Bigints(ats)
        )
