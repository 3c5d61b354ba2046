"""Filters: any search is refused or finds, and every store finds what the memory store does."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from gantline import Gantline
from gantline.api.searching import FindOptions, make_filter
from gantline.contract.clock import SystemClock
from gantline.contract.errors import InvalidInput
from gantline.contract.query import Cursor, JobFilter, Page, Visibility
from gantline.contract.status import DerivedState, JobStatus
from gantline.contract.store import JobStore
from gantline.stores import store_from_url
from gantline.testing.factories import CREATED_AT, make_new
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_time
from tests.fuzz.mutation import texts
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

NAMES: Final = ("test", "a", "default", "acme", "s", "Queued", "job.*", "%", "_", "t'", "é")
JOBS: Final = [
    make_new(
        number,
        job_id=UUID(int=number + 1),
        tenant_id=tenant,
        job_type=kind,
        queue=queue,
        subject_id=subject,
        correlation_id=correlation,
        created_by=owner,
        created_at=CREATED_AT + timedelta(hours=number // 2),
        parent_job_id=UUID(int=1) if number % 3 else None,
    )
    for number, (tenant, kind, queue, subject, correlation, owner) in enumerate(
        [
            ("default", "test", "default", "s", "c", "a"),
            ("default", "a", "default", "", "", ""),
            ("acme", "test", "%", "%", "_", "t'"),
            ("acme", "é", "é", "é", "é", "é"),
            ("default", "gantline.webhook-delivery", "webhooks", "s", "c", "a"),
            ("default", "test", "t'", "s", "00000000-0000-0000-0000-000000000006", "user:alice"),
            ("a", "test", "default", "s" * 512, "c" * 256, "a" * 256),
        ]
    )
]

names = texts(NAMES)
some = st.frozensets(names, max_size=3)
zones = st.just(UTC) | st.timezones()
instants = st.datetimes(timezones=zones) | st.sampled_from(
    [
        CREATED_AT,
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.fromisoformat("0001-01-01T00:00:00+23:59"),
        datetime.fromisoformat("9999-12-31T23:59:59.999999-23:59"),
    ]
)
numbers = st.integers() | st.sampled_from([0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**400])
visibilities = st.builds(
    Visibility,
    tenant_id=st.none() | names,
    job_types=st.none() | some,
    owner=st.none() | names,
    subjects=some,
)
filters = st.builds(
    JobFilter,
    tenant_id=st.none() | names,
    statuses=st.frozensets(st.sampled_from([*JobStatus, *DerivedState]), max_size=2),
    job_types=st.just(frozenset()) | some,
    queues=st.just(frozenset()) | some,
    reasons=st.just(frozenset()) | some,
    error_codes=st.just(frozenset()) | some,
    min_attempts=st.just(0) | numbers,
    internal=st.booleans(),
    subject_id=st.none() | names,
    created_by=st.none() | names,
    correlation_id=st.none() | names | st.uuids().map(str),
    parent_job_id=st.none() | st.uuids() | st.just(UUID(int=1)),
    created_from=st.none() | instants,
    created_before=st.none() | instants,
    due_before=st.none() | instants,
    visible_to=st.none() | visibilities,
)
# One field at a time finds something; all of them together seldom do.
narrow = st.sampled_from(JobFilter.__struct_fields__).flatmap(
    lambda field: filters.map(
        lambda one: JobFilter(**{"tenant_id": None, field: getattr(one, field)})
    )
)
cursors = st.none() | st.builds(Cursor, instants, st.uuids() | st.just(UUID(int=3)))


@pytest.fixture(scope="module")
def oracle(runner: asyncio.Runner) -> Iterator[JobStore]:
    yield from filled(runner, "memory://")


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def store(
    request: pytest.FixtureRequest,
    runner: asyncio.Runner,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JobStore]:
    name = f"w{uuid4().hex}"
    match request.param:
        case "sqlite":
            yield from filled(runner, f"sqlite:///{tmp_path_factory.mktemp(name)}/gantline.db")
        case "redis":
            redis: RedisServer = request.getfixturevalue("redis")
            yield from filled(runner, redis.url(prefix=name))
        case _:
            postgres: PostgresServer = request.getfixturevalue("postgres")
            yield from filled(runner, postgres.url(schema=name))


def filled(runner: asyncio.Runner, url: str) -> Iterator[JobStore]:
    store = store_from_url(url, clock=SystemClock())
    runner.run(store.open())
    runner.run(store.insert(JOBS))
    yield store
    runner.run(store.close())


def found(runner: asyncio.Runner, store: JobStore, asked: JobFilter, after: Cursor | None) -> Page:
    with in_time():
        return runner.run(store.find(asked, limit=3, after=after))


def shown(page: Page) -> Any:
    return [job.job.job_id for job in page.items], page.next


@given(asked=filters | narrow, after=cursors)
@effort(120)
def test_every_store_finds_the_same(
    runner: asyncio.Runner, oracle: JobStore, store: JobStore, asked: JobFilter, after: Cursor
) -> None:
    note(f"{asked!r} after {after!r}")
    there = found(runner, store, asked, after)
    assert shown(there) == shown(found(runner, oracle, asked, after))


# -- searches of Python ---------------------------------------------------------------------------

anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | names
    | st.lists(names | st.integers(), max_size=3)
    | st.timedeltas()
    | st.datetimes()
    | instants
    | st.uuids()
    | st.dictionaries(names, names, max_size=1)
    | st.binary(max_size=3)
    | st.builds(object)
    | st.just(float("nan"))
    | st.builds(pow, st.just(10), st.sampled_from([20, 400]))
)
options = st.dictionaries(
    st.sampled_from([*FindOptions.__annotations__, "unknown", ""]), anything, max_size=4
)


@given(options)
@effort(400)
def test_any_search_of_python_is_refused_or_a_filter(given_options: dict[str, Any]) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with in_time():
        try:
            asked = make_filter(given_options, "default", now)  # type: ignore[arg-type]  # on purpose
        except InvalidInput:
            return
        assert isinstance(asked, JobFilter)


@given(asked=options)
@effort(80)
def test_any_search_of_python_is_refused_or_finds(
    runner: asyncio.Runner, asked: dict[str, Any]
) -> None:
    async def find() -> list[Any]:
        async with Gantline("memory://") as jobs:
            await jobs.store.insert(JOBS)
            return [one async for one in jobs.find(**asked)]

    try:
        with in_time():
            runner.run(find())
    except InvalidInput:
        return
