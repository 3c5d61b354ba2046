"""Timing of single claims. Every claim is undone before the next, so the population stays.

What is compared takes turns claim by claim, so that a slow moment of the machine hits all alike.
"""

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from benchmarks.jobs import LEASE, SESSION, claim, settle
from benchmarks.scale import Scale
from benchmarks.stores import opened
from gantline.contract.clock import SystemClock, to_micros
from gantline.contract.outcome import Released
from gantline.contract.query import LaneRequest
from gantline.contract.store import JobStore
from gantline.manager.manager import JobManager
from gantline.runtime import new_uuid
from gantline.stores.sqlite.claim import claim as claim_statements
from gantline.stores.sqlite.connection import connect_writer
from gantline.stores.sqlite.location import Location

Requests = tuple[LaneRequest, ...]
Spans = list[list[float]]


class SeededFile(NamedTuple):
    """A database, and the claim that is measured on it."""

    path: Path
    requests: Requests


def through_files(files: Sequence[SeededFile], scale: Scale) -> list[list[float]]:
    """The whole way, with its commit, over SQLite stores."""

    async def measure() -> list[list[float]]:
        async with AsyncExitStack() as stack:
            opening = [(opened(path), requests) for path, requests in files]
            stores = [(await stack.enter_async_context(it), requests) for it, requests in opening]
            return await through_stores(stores, scale)

    return asyncio.run(measure())


async def through_stores(
    stores: Sequence[tuple[JobStore, Requests]], scale: Scale
) -> list[list[float]]:
    """Milliseconds as a worker waits for them: per store the median of each run."""
    medians: list[list[float]] = [[] for _ in stores]
    for _ in range(scale.runs):
        spans: Spans = [[] for _ in stores]
        for _ in range(scale.claims_per_run):
            for (store, requests), taken in zip(stores, spans, strict=True):
                taken.append(await _released(store, requests))
        _add_medians(medians, spans)
    return medians


def statements_only(files: Sequence[SeededFile], scale: Scale) -> list[list[float]]:
    """The same without thread, loop and disk: inside transactions that are rolled back."""
    medians: list[list[float]] = [[] for _ in files]
    with ExitStack() as stack:
        connections = [
            (stack.enter_context(closing(connect_writer(Location(path)))), requests)
            for path, requests in files
        ]
        for _ in range(scale.runs):
            spans: Spans = [[] for _ in files]
            for _ in range(scale.claims_per_run):
                for (connection, requests), taken in zip(connections, spans, strict=True):
                    taken.append(_rolled_back(connection, requests))
            _add_medians(medians, spans)
    return medians


def _add_medians(medians: list[list[float]], spans: Spans) -> None:
    for values, taken in zip(medians, spans, strict=True):
        values.append(statistics.median(taken) * 1000)


async def _released(store: JobStore, requests: Requests) -> float:
    start = time.perf_counter()
    runs = await claim(store, requests)
    span = time.perf_counter() - start
    assert len(runs) == sum(request.limit for request in requests)
    await settle(JobManager(store), runs, Released())
    return span


def _rolled_back(connection: sqlite3.Connection, requests: Requests) -> float:
    connection.execute("BEGIN IMMEDIATE")
    start = time.perf_counter()
    runs = claim_statements(
        connection,
        SESSION,
        uuid4(),
        requests,
        lease=LEASE,
        now=to_micros(SystemClock().now()),
        tokens=new_uuid,
    )
    span = time.perf_counter() - start
    connection.execute("ROLLBACK")
    assert len(runs) == sum(request.limit for request in requests)
    return span
