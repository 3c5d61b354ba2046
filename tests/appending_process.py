"""A process that appends to an audit chain until it has done enough, or is killed.

    python -m tests.appending_process URL NAME COUNT

It says `ready` and waits for a line, so that several begin together. What the chain has
acknowledged is told on stdout, a line for each batch.
"""

import asyncio
import sys
from uuid import uuid4

from gantline.audit.chain import NewAuditEvent
from gantline.audit.chain_writer import ChainWriter
from gantline.contract.clock import SystemClock
from gantline.stores import store_from_url

BATCH = 5


async def append(url: str, name: str, count: int) -> None:
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    writer = ChainWriter(store)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()

    async def one() -> str:
        payload = {"id": uuid4().hex}
        draft = NewAuditEvent(aggregate="access", type="test", actor=name, payload=payload)
        await writer.append("acme", draft)
        return payload["id"]

    for _ in range(count // BATCH):
        ids = await asyncio.gather(*(one() for _ in range(BATCH)))
        sys.stdout.write(" ".join(ids) + "\n")
        sys.stdout.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(append(sys.argv[1], sys.argv[2], int(sys.argv[3])))
