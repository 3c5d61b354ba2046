"""The SQL function submit(): any JSON is an error, or a job that can be read."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import msgspec
import psycopg
import pytest
from hypothesis import given
from psycopg import sql

from gantline.contract.job import check_job
from gantline.stores.postgres import PostgresStore, open_store
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_time
from tests.fuzz.mutation import documents, with_each_edge
from tests.fuzz.test_envelopes import WHOLE
from tests.servers.postgres import PostgresServer

JOB: Final[dict[str, Any]] = {name: one for name, one in WHOLE.items() if name != "jobId"} | {
    "logged": True,
    "requestKey": {"scope": "user:alice", "key": "k", "holdSeconds": 3600, "fingerprint": "00ff"},
}
KEYED: Final = JOB | {"jobId": str(uuid4()), "delaySeconds": 1.5, "fingerprint": "00" * 32}
TEXT: Final[dict[str, Any]] = {"jobType": "mail", "payloadText": '{"b": 1, "a": 1.50}'}
CORPUS: Final = (JOB, KEYED, TEXT, {"jobType": "mail"}, [{"jobType": "mail"}, TEXT])

# Wrong data; no such number; a check of a table; a limit of the server. Never a bug of ours.
EXPECTED: Final = ("22", "0A000", "23514", "54")


class Caller:
    """Submits by SQL, and reads by the store."""

    def __init__(
        self, runner: asyncio.Runner, connection: psycopg.Connection[Any], store: PostgresStore
    ) -> None:
        self._run = runner.run
        self._connection = connection
        self._store = store
        schema = sql.Identifier(store.location.schema)
        self._statement = sql.SQL("SELECT outcome, job_id FROM {}.submit(%s)").format(schema)

    def submit(self, content: bytes) -> list[Any]:
        """The ids of jobs that were accepted; none where it was refused as it should be."""
        self._connection.rollback()
        try:
            text = content.decode()  # or it could not be sent
            rows = self._connection.execute(self._statement, [text]).fetchall()
            self._connection.commit()
        except UnicodeDecodeError:
            return []
        except psycopg.Error as error:
            if not (error.sqlstate or "22").startswith(EXPECTED):
                raise
            return []
        return [job_id for outcome, job_id in rows if outcome == "accepted"]

    def check(self, job_ids: list[Any]) -> None:
        """What was accepted is read, and its names and numbers hold to the contract.

        Not its payload, which may be deeper than others or have numbers that only SQL can say: then
        its run is refused by a worker.
        """
        for found in self._run(self._store.get(job_ids, tenant_id=None)):
            assert found is not None
            job = msgspec.structs.replace(found.job, trace_context=None)
            check_job(job, data=None)


@pytest.fixture(scope="module")
def caller(runner: asyncio.Runner, postgres: PostgresServer) -> Iterator[Caller]:
    schema = f"w{uuid4().hex}"
    store = open_store(postgres.url(schema=schema))
    runner.run(store.open())
    with psycopg.connect(postgres.url()) as connection:
        connection.execute("SET statement_timeout = '5s'; SET synchronous_commit = off")
        connection.commit()
        yield Caller(runner, connection, store)
        connection.rollback()
        runner.run(store.close())
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


@given(content=documents(CORPUS))
@effort(200)
def test_any_json_is_refused_or_jobs_that_read(caller: Caller, content: bytes) -> None:
    with in_time():
        caller.check(caller.submit(content))


@pytest.mark.parametrize("field", [*KEYED, "payloadText"])
def test_no_field_is_troubled_by_an_edge_of_json(caller: Caller, field: str) -> None:
    job = {name: one for name, one in KEYED.items() if name not in ("jobId", "idempotencyKey")}
    if field == "payloadText":
        del job["payload"]
    del job["requestKey"]
    for content in with_each_edge(job, field):
        with in_time():
            caller.check(caller.submit(content))
