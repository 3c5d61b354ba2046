"""claim: due jobs from ready to lease."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from gantline.contract.errors import SessionNotRegistered
from gantline.contract.flow import TypeFlow
from gantline.contract.query import LaneRequest
from gantline.contract.snapshot import Run
from gantline.runtime import random_bytes
from gantline.stores.ranks import SUSPECT_CRASHES
from gantline.stores.redis import scripts
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.connection import Argument
from gantline.stores.redis.rows import (
    Claimed,
    encode_lane,
    encode_span,
    pack,
    read_claimed_run,
    read_instant,
    read_run,
)

Tokens = Callable[[int], bytes]

_MOST_AT_ONCE: Final = 1000
"""The most that one call claims, however many are requested."""
_TOKEN_SIZE: Final = 16
_WIDTH: Final = 4
_MICROS: Final = 1_000_000
_NOT_REGISTERED: Final = b"N"
# Masks that make a random 128-bit number a UUID of version 4.
_RANDOM: Final = (1 << 128) - 1 - (0xF << 76) - (0b11 << 62)
_VERSION: Final = (0x4 << 76) | (0b10 << 62)


async def claim(
    calls: Calls,
    session: str,
    claim_id: UUID,
    requests: Sequence[LaneRequest],
    *,
    lease: timedelta,
    now: bytes,
    tokens: Tokens,
) -> list[Run]:
    encoded, most = _encode_requests(requests)
    if not most:
        return []
    given = (now, session, claim_id.bytes, encode_span(lease))
    # Tokens of its own for each attempt: one that arrives late, when the runs of the repeated one
    # have ended, must not hand out theirs again.
    reply = await calls.run_each(scripts.CLAIM, lambda: [(*given, tokens(most), *encoded)])
    return _read_runs(reply.value[0], session)


def _encode_requests(requests: Sequence[LaneRequest]) -> tuple[list[Argument], int]:
    argv: list[Argument] = []
    left = _MOST_AT_ONCE
    for request in requests:
        limit = min(request.limit, left)
        kinds = dict.fromkeys(request.job_types)
        if limit > 0 and kinds:
            left -= limit
            argv += (
                limit,
                len(kinds),
                _encode_suspects(request, limit),
                _encode_limits(request, kinds, limit),
                _encode_flows(request, kinds) if request.flow else b"",
            )
            for kind in kinds:
                argv += (encode_lane(request.queue, kind), int(kind in request.logged))
    return argv, _MOST_AT_ONCE - left


def _encode_suspects(request: LaneRequest, limit: int) -> bytes:
    """Encode how many by number of crashes; empty where no suspects are requested."""
    if not request.suspects:
        return b""
    return _pack_numbers([request.most_suspects(crashes) for crashes in SUSPECT_CRASHES], limit)


def _encode_limits(request: LaneRequest, kinds: Iterable[str], limit: int) -> bytes:
    """Encode how many of each type; empty where none is limited."""
    most = dict(request.at_most)
    return _pack_numbers([most.get(kind, limit) for kind in kinds], limit) if most else b""


def _encode_flows(request: LaneRequest, kinds: Iterable[str]) -> bytes:
    """Encode limits and gates of the types that have any; empty where none has."""
    index_of = {kind: index for index, kind in enumerate(kinds, 1)}
    flows = [
        (index_of[flow.job_type], flow.job_type, *map(_or_false, _parts_of(flow)))
        for flow in request.flow
        if flow.job_type in index_of
    ]
    return pack(flows) if flows else b""


def _parts_of(flow: TypeFlow) -> tuple[object, object, object]:
    gate = flow.gate
    return (
        flow.running,
        flow.running_in_all,
        gate and (gate.name, float(gate.per_second), gate.burst),
    )


def _or_false(part: object) -> object:
    return False if part is None else part


def _pack_numbers(numbers: Sequence[int], limit: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *(max(0, min(number, limit)) for number in numbers))


def new_tokens(count: int) -> bytes:
    """Make run tokens, all at once: each like those of `new_uuid`."""
    random, version = _masks(count)
    drawn = int.from_bytes(random_bytes(_TOKEN_SIZE * count), "big")
    return (drawn & random | version).to_bytes(_TOKEN_SIZE * count, "big")


@lru_cache(maxsize=64)
def _masks(count: int) -> tuple[int, int]:
    """Which bits of so many tokens are random, and what makes each a UUID of version 4."""
    ones = ((1 << (128 * count)) - 1) // ((1 << 128) - 1)
    return ones * _RANDOM, ones * _VERSION


def _read_runs(reply: Any, session: str) -> list[Run]:
    if reply == _NOT_REGISTERED:
        raise SessionNotRegistered(session)
    now, until, *rest = reply
    if until:
        claimed = Claimed(session, read_instant(now), read_instant(until))
        return [
            read_claimed_run(job_id, state, envelope, claimed, (now - due) / _MICROS)
            for job_id, state, envelope, due in _in_fours(rest)
        ]
    # A repeated claim: each of its leases may have been renewed.
    count = len(rest) // (_WIDTH + 1)
    return [
        read_run(job_id, state, envelope, renewed)
        for (job_id, state, envelope, _), renewed in zip(
            _in_fours(rest[: _WIDTH * count]), rest[_WIDTH * count :], strict=True
        )
    ]


def _in_fours(values: list[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*[iter(values)] * _WIDTH, strict=True)
