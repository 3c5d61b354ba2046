"""The books of groups on Redis: what turns, permits and counts say, beside what the jobs say."""

import re
import struct
from collections import Counter, defaultdict
from typing import Any

from gantline.contract.snapshot import SUSPECT_AFTER_CRASHES
from gantline.stores.redis.calls import Calls
from gantline.stores.redis.rows import State
from tests.harness import RedisHarness

_STATE = struct.Struct(">c5IB2I2Q8sQ2B8s")
_PLAIN = bytes(8)


class Books:
    """What is stored under the prefix of a harness."""

    def __init__(self, harness: RedisHarness) -> None:
        self._location = harness.location
        self._calls = Calls(harness.location)

    async def close(self) -> None:
        await self._calls.close()

    async def ask(self, name: str, key: str, *rest: Any) -> Any:
        return await self._calls.ask(name, b"%b:%b" % (self._location.tag, key.encode()), *rest)

    async def keys(self, pattern: str) -> list[str]:
        tag = self._location.tag.decode()
        found = await self._calls.ask("KEYS", re.sub(r"([{}])", r"\\\1", f"{tag}:{pattern}"))
        return sorted(key.decode().removeprefix(f"{tag}:") for key in found)

    async def commands(self) -> int:
        """How many commands the server has run so far, those of scripts too."""
        stats = (await self._calls.ask("INFO", "commandstats")).decode()
        return sum(int(calls) for calls in re.findall(r":calls=(\d+)", stats))

    async def _members(self, key: str) -> dict[bytes, int]:
        found = await self.ask("ZRANGE", key, 0, -1, "WITHSCORES")
        return {
            member: int(float(score)) for member, score in zip(found[::2], found[1::2], strict=True)
        }

    async def check(self) -> None:
        """No job waits without a turn; permits, sets and counts are those of the jobs."""
        found = await self.ask("HGETALL", "states")
        ready: defaultdict[tuple[str, str], dict[bytes, int]] = defaultdict(dict)
        running: defaultdict[str, set[bytes]] = defaultdict(set)
        queued: Counter[tuple[str, bytes]] = Counter()
        in_groups: Counter[str] = Counter()
        default = int(await self.ask("HGET", "names", "tdefault") or 0)
        turns: dict[tuple[str, bytes], int] = {}
        for job_id, packed in zip(found[::2], found[1::2], strict=True):
            state = State(*_STATE.unpack_from(packed))
            if state.group == _PLAIN or state.status not in (b"Q", b"R"):
                continue
            group, letter = state.group.hex(), state.status.decode()
            turn = f"{state.tenant}:{group}".encode()
            if state.tenant == default:
                in_groups[f"{state.lane}:{letter}"] += 1
            queued[f"waiting:{state.lane}", turn] += letter == "Q"
            if letter == "R":
                running[f"permits:{state.lane}:{group}"].add(job_id)
            elif state.crashes < SUSPECT_AFTER_CRASHES:
                member = job_id + struct.pack(">2I", state.lane, state.tenant) + state.group
                place = f"{state.lane}:{state.priority}"
                ready[place, group][member] = state.at
                turns[place, turn] = min(state.at, turns.get((place, turn), state.at))
        for key in await self.keys("permits:*"):
            assert set(await self.ask("SMEMBERS", key)) == running.pop(key), key
        assert not running
        await self._check_sets(ready)
        await self._check_counts(queued, in_groups)
        await self._check_turns(turns)

    async def _check_sets(self, ready: dict[tuple[str, str], dict[bytes, int]]) -> None:
        together: defaultdict[str, dict[bytes, int]] = defaultdict(dict)
        for (place, group), members in ready.items():
            assert await self._members(f"ready:{place}:{group}") == members
            together[f"grouped:{place}"] |= members
        assert await self.keys("grouped:*") == sorted(together)
        for key, members in together.items():
            assert await self._members(key) == members
        named = await self.keys("ready:*:*:*")
        assert named == sorted(f"ready:{place}:{group}" for place, group in ready)

    async def _check_counts(
        self, queued: Counter[tuple[str, bytes]], in_groups: Counter[str]
    ) -> None:
        shown = {
            (key, one) for key in await self.keys("groups:*") for one in await self._members(key)
        }
        assert shown == {(key.replace("waiting", "groups"), turn) for key, turn in queued}
        counts: dict[tuple[str, bytes], int] = {}
        for key in await self.keys("waiting:*"):
            of_lane = await self.ask("HGETALL", key)
            for turn, jobs in zip(of_lane[::2], of_lane[1::2], strict=True):
                counts[key, turn] = int(jobs)
        assert counts == dict(queued)
        fields = await self.ask("HGETALL", "in-groups")
        counted = zip(fields[::2], fields[1::2], strict=True)
        assert {field.decode(): int(jobs) for field, jobs in counted} == dict(in_groups)

    async def _check_turns(self, turns: dict[tuple[str, bytes], int]) -> None:
        named = {one.decode() for one in await self.ask("SMEMBERS", "in-turns")}
        for (place, turn), due in turns.items():
            lane, rank = place.split(":")
            tenant, group = turn.decode().split(":")
            later = await self.ask("ZSCORE", f"later:{place}", turn)
            has_turn = await self.ask("ZSCORE", f"turns:{place}:{tenant}", group)
            if has_turn is not None:
                assert await self.ask("ZSCORE", f"turns:{place}", tenant) is not None
            full = await self.ask("ZSCORE", f"full:{lane}", rank.encode() + b":" + turn)
            is_known = later is not None and int(float(later)) <= due
            assert is_known or has_turn is not None or full is not None, (place, turn)
            assert place in named
        assert await self._all_turns() <= turns.keys()
        lanes = {place.partition(":")[0] for place, _ in turns}
        assert {place.partition(":")[0] for place in named} <= lanes

    async def _all_turns(self) -> set[tuple[str, bytes]]:
        """Those of groups, wherever they are."""
        found: set[tuple[str, bytes]] = set()
        for key in await self.keys("later:*"):
            place = key.partition(":")[2]
            found |= {(place, turn) for turn in await self._members(key)}
        for key in await self.keys("turns:*:*:*"):
            lane, rank, tenant = key.split(":")[1:]
            for group in await self._members(key):
                found.add((f"{lane}:{rank}", b"%b:%b" % (tenant.encode(), group)))
        for key in [*await self.keys("full:*"), *await self.keys("full-at:*")]:
            for member in await self._members(key):
                ranked, _, name = member.partition(b":")
                found.add((f"{key.partition(':')[2]}:{ranked.decode()}", name))
        return {(place, turn) for place, turn in found if not turn.endswith(_PLAIN.hex().encode())}
