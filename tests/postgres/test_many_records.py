"""Many records written together are written as one by one."""

import random
from datetime import timedelta

import pytest

from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied
from gantline.contract.store import JobStore
from tests.harness import PostgresHarness
from tests.servers.postgres import PostgresServer

KEYS = "abcdefgh"


class Written:
    """A store, and the versions that it has given."""

    def __init__(self, store: JobStore, *, at_once: int) -> None:
        self.store = store
        self._at_once = at_once
        self._versions: dict[str, list[int]] = {key: [0, 0] for key in KEYS}

    async def write(
        self, asked: list[tuple[str, bytes | None, str, timedelta | None]]
    ) -> list[str]:
        writes = [
            RecordWrite("n", key, value, self._expected(key, how), lives)
            for key, value, how, lives in asked
        ]
        answers = [
            answer
            for start in range(0, len(writes), self._at_once)
            for answer in await self.store.write_records(writes[start : start + self._at_once])
        ]
        for write, answer in zip(writes, answers, strict=True):
            if isinstance(answer, Applied):
                self._versions[write.key].append(answer.version)
        return [type(answer).__name__ for answer in answers]

    def _expected(self, key: str, how: str) -> int | None:
        *_, old, known = self._versions[key]
        return {"any": None, "none": 0, "known": known, "old": old}[how]

    async def read(self) -> list[tuple[str, bytes]]:
        return [(one.key, one.value) for one in await self.store.read_records("n")]


@pytest.mark.parametrize("seed", range(5))
async def test_together_is_as_one_by_one(postgres: PostgresServer, seed: int) -> None:
    chance = random.Random(seed)
    harnesses = [PostgresHarness(postgres), PostgresHarness(postgres)]
    stores = [await harness.open() for harness in harnesses]
    together, single = Written(stores[0], at_once=100), Written(stores[1], at_once=1)
    for number in range(40):
        lives = chance.choice((None, None, timedelta(seconds=5)))
        asked = [
            (
                key,
                chance.choice((None, b"x%d" % chance.randint(0, 3), b"%d" % number)),
                chance.choice(("any", "none", "known", "old")),
                lives,
            )
            for key in chance.sample(KEYS, chance.randint(2, len(KEYS)))
        ]
        assert await together.write(asked) == await single.write(asked), (number, asked)
        assert await together.read() == await single.read()
        for harness in harnesses:
            harness.clock.advance(number % 4)
    for harness in harnesses:
        await harness.close()
