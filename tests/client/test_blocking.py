"""The blocking client runs on a loop in a thread: nobody who uses it needs to know."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import UUID

import httpx2
import msgspec
import pytest

from gantline.client import JobToSubmit, new_job
from gantline.client.blocking import Client
from gantline.client.exchange import Retries
from gantline.loop_thread import LoopThread
from tests.client.conftest import HASTY
from tests.servers.http_api import ApiProcess
from tests.servers.scripted import Act, ScriptedServer, stalling

LONGEST_SECONDS = 10


def loop_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "gantline-sync"]


def wait_until_gone(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(LONGEST_SECONDS)
        assert not thread.is_alive()


def stalled() -> tuple[threading.Event, Act]:
    """An act that never answers, and when a request has come."""
    arrived = threading.Event()

    def act(connection: socket.socket, server: ScriptedServer) -> None:
        arrived.set()
        stalling()(connection, server)

    return arrived, act


@pytest.fixture
def client(server: ApiProcess) -> Iterator[Client]:
    with Client(server.url, api_key="operator", retries=HASTY) as client:
        yield client


def test_many_threads_share_a_client(client: Client) -> None:
    with ThreadPoolExecutor(16) as pool:
        accepted = list(pool.map(lambda _: client.submit("sweep"), range(64)))
    assert len({one.job_id for one in accepted}) == 64
    assert all(isinstance(one.job_id, UUID) for one in accepted)


def test_threads_that_call_at_once_after_a_fork_begin_together(client: Client) -> None:
    client._process = 0  # as a fork leaves it
    at_once = threading.Barrier(6)

    def submit(_: int) -> UUID:
        at_once.wait(LONGEST_SECONDS)
        return client.submit("sweep").job_id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(submit, range(6)))) == 6


async def test_it_can_be_used_where_a_loop_runs(client: Client) -> None:
    accepted = client.submit("sweep")
    assert client.status(accepted.job_id).job_id == accepted.job_id


def test_jobs_may_be_made_by_a_generator_that_uses_the_client(client: Client) -> None:
    threads = set()

    def jobs() -> Iterator[JobToSubmit]:
        for _ in range(3):
            threads.add(threading.current_thread())
            yield new_job("sweep", subject=str(client.submit("sweep").job_id))

    assert client.submit_many(jobs()).accepted == 3
    assert threads == {threading.current_thread()}


def test_a_stream_can_be_closed_and_left(client: Client) -> None:
    accepted = client.submit("sweep")
    for _ in range(25):  # more than may be open at once
        with closing(client.follow(accepted.job_id)) as events:
            assert next(events).event == "state"
    left = client.follow(accepted.job_id)
    next(left)
    client.close()
    left.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(client.follow(accepted.job_id))


LEFT_OPEN = """
import sys
from gantline.client import Client
with Client(sys.argv[1], api_key="operator") as client:
    accepted = client.submit("sweep")
    events = client.follow(accepted.job_id)
    print(next(events).event)
    more = client.follow_jobs([accepted.job_id])
    print(next(more).event)
"""


def test_leaving_a_client_that_still_follows_a_job_is_quiet(server: ApiProcess) -> None:
    left = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, server.url], capture_output=True, text=True, check=False
    )
    assert (left.stdout.split(), left.stderr) == (["state", "state"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_it_can_be_used_after_a_fork(client: Client) -> None:
    accepted = client.submit("sweep")
    events = client.follow(accepted.job_id)
    next(events)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            same = client.status(accepted.job_id).job_id == accepted.job_id
            events.close()
            client.close()
            code = 0 if same else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.status(accepted.job_id).job_id == accepted.job_id
    events.close()


def test_closing_ends_the_calls_of_other_threads() -> None:
    arrived, act = stalled()
    server = ScriptedServer([act])
    client = Client(server.url, retries=Retries(attempts=1))
    try:
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(client.statistics)
            assert arrived.wait(LONGEST_SECONDS)
            client.close()
            with pytest.raises(RuntimeError, match="closed"):
                call.result(LONGEST_SECONDS)
    finally:
        server.stop()


def test_a_client_that_is_forgotten_leaves_no_thread(server: ApiProcess) -> None:
    others = loop_threads()
    forgotten = Client(server.url, api_key="operator")
    forgotten.statistics()
    (thread,) = set(loop_threads()) - set(others)
    del forgotten
    gc.collect()
    wait_until_gone([thread])


def test_a_client_lives_as_long_as_what_it_iterates_over(server: ApiProcess) -> None:
    jobs = Client(server.url, api_key="operator").jobs(limit=150)
    gc.collect()
    assert len(list(jobs)) <= 150


def test_a_client_that_is_not_used_starts_no_thread() -> None:
    before = loop_threads()
    with Client("http://127.0.0.1:9"):
        assert set(loop_threads()) <= set(before)


INTERRUPTED = """
import sys, threading
from gantline.client import Client
client = Client(sys.argv[1])
print("asking", flush=True)
try:
    with client:
        client.statistics()
except KeyboardInterrupt:
    left = [one for one in threading.enumerate() if one.name == "gantline-sync"]
    print("interrupted", len(left), flush=True)
"""


def test_an_interrupt_ends_a_call() -> None:
    arrived, act = stalled()
    server = ScriptedServer([act])
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, server.url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert arrived.wait(LONGEST_SECONDS)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LONGEST_SECONDS)
        assert out.split() == ["asking", "interrupted", "0"]
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        server.stop()


def test_a_call_that_would_wait_for_its_own_thread_is_refused() -> None:
    async def nothing() -> None: ...

    async def call() -> None:
        thread.run(nothing)

    thread = LoopThread()
    with pytest.raises(RuntimeError, match="its own thread"):
        thread.run(call)
    thread.stop(nothing)
    thread.join(LONGEST_SECONDS)


class Blocking(httpx2.BaseTransport):
    """A transport that knows no loop."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.is_closed = False

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.threads.add(threading.current_thread().name)
        page: dict[str, Any] = {"items": [], "nextCursor": None}
        return httpx2.Response(200, content=msgspec.json.encode(page))

    def close(self) -> None:
        self.is_closed = True


def test_a_transport_that_blocks_is_called_beside_the_loop() -> None:
    transport = Blocking()
    with Client("https://jobs.example.com", transport=transport) as client:
        assert list(client.jobs()) == []
    assert transport.threads
    assert "gantline-sync" not in transport.threads
    assert transport.is_closed
