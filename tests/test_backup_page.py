"""docs/guides/backup.md: what was dumped is there again."""

import re
import subprocess
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from gantline import Gantline, JobStatus
from tests.servers.postgres import PostgresServer, binaries
from tests.test_documentation import Shell, blocks, page
from tests.walkthrough import Walkthrough

pytestmark = pytest.mark.timeout(120)


def test_a_file_of_sqlite_that_is_restored_has_what_was_there_at_the_backup(tmp_path: Path) -> None:
    with Walkthrough(Shell(tmp_path)) as reader:
        reader.follow(page("guides/backup.md"))
        assert re.search(r"default +greet +1 ", reader.shell.run("gantline stats"))


async def test_a_schema_of_postgresql_is_dumped_and_restored(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    name = f"b{uuid4().hex}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    shell = Shell(tmp_path)
    shell.environment["PATH"] = f"{binaries()}:{shell.environment['PATH']}"
    url = shell.environment["DATABASE_URL"] = postgres.url(name)
    shell.environment["GANTLINE_STORE"] = url
    dump, restore = (one for one in blocks(page("guides/backup.md"), "bash") if "pg_" in one)
    jobs = Gantline(url)

    @jobs.job
    async def greet(name: str) -> None: ...

    async with jobs:
        kept = await greet.submit("Ada")
        run(shell, dump)
        await greet.submit("Grace")
    run(shell, restore)
    async with jobs:
        assert (await kept.status()).status is JobStatus.QUEUED
        assert [count.queued for count in await jobs.store.counts(tenant_id=None)] == [1]


def run(shell: Shell, script: str) -> None:
    done = subprocess.run(
        ["/bin/bash", "-euc", script],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
