"""A process that begins a transaction, changes something in it, and goes no further.

python -m tests.postgres.holding_process URL
"""

import asyncio
import sys

from gantline import Gantline

jobs = Gantline(sys.argv[1])


@jobs.job("held")
async def held(number: int) -> None: ...


async def main() -> None:
    async with jobs, jobs.transaction() as connection:
        await held.submit(1, connection=connection)
        print("begun", flush=True)  # noqa: T201  # the test waits for it
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main())
