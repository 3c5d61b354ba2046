"""A host that is lost in the middle of a transaction leaves no locks behind for long."""

import asyncio
import os
import sys
from pathlib import Path

import psycopg
import pytest

from tests.other_host import other_host, why_impossible
from tests.servers.api import REPOSITORY
from tests.servers.postgres import PostgresServer

# What the server has sent is given up after 20 s; where it has sent nothing, it asks from 10 s on.
ENDS_WITHIN_SECONDS = 10 + 3 * 5 + 10
_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"


@pytest.mark.wide
@pytest.mark.xdist_group("processes")
async def test_the_server_ends_the_transaction_of_a_host_that_is_lost(tmp_path: Path) -> None:
    if why := why_impossible():
        pytest.skip(why)
    server = PostgresServer(listen_addresses="*")
    try:
        server.let_all_hosts_in()
        with other_host(tmp_path) as elsewhere:
            url = server.url().replace("127.0.0.1", elsewhere.outside)
            process = await asyncio.create_subprocess_exec(
                *(*elsewhere.command, sys.executable, "-m", "tests.postgres.holding_process", url),
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            )
            try:
                assert process.stdout is not None
                async with asyncio.timeout(60):
                    assert await process.stdout.readline() == b"begun\n"
                elsewhere.cut_off()
                assert await _open_transactions(server) == 1
                async with asyncio.timeout(ENDS_WITHIN_SECONDS):
                    while await _open_transactions(server):  # noqa: ASYNC110  # in the server
                        await asyncio.sleep(0.2)
            finally:
                process.kill()
                await process.wait()
    finally:
        server.stop()


async def _open_transactions(server: PostgresServer) -> int:
    async with await psycopg.AsyncConnection.connect(server.url(), autocommit=True) as connection:
        row = await (await connection.execute(_OPEN)).fetchone()
    assert row is not None
    count: int = row[0]
    return count
