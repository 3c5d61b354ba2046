"""Cursors: any text is one that was given out or Refused, and one that was given out works."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline.api.paging import cursor_text, name_cursor_text, read_cursor, read_name_cursor
from gantline.api.problems import Refused
from gantline.contract.clock import SystemClock
from gantline.contract.query import Cursor, JobFilter
from gantline.stores.memory import open_store
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_bounds, in_time
from tests.fuzz.mutation import texts

GIVEN: Final = (
    cursor_text(Cursor(datetime(2026, 1, 1, tzinfo=UTC), UUID(int=7))),
    cursor_text(Cursor(datetime.max.replace(tzinfo=UTC), UUID(int=0))),
    name_cursor_text("nightly"),
    name_cursor_text(""),
    name_cursor_text("é\U0010ffff"),
)
READERS: Final[tuple[Callable[[str], Any], ...]] = (read_cursor, read_name_cursor)


def tried(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except Refused:
        return None


@given(texts(GIVEN) | st.binary(max_size=40).map(lambda some: some.decode("latin-1")))
@effort(800)
def test_any_text_is_a_cursor_that_reads_back_or_refused(text: str) -> None:
    with in_time():
        place = tried(read_cursor, text)
        assert place is None or cursor_text(place) == text
        name = tried(read_name_cursor, text)
        assert name is None or name_cursor_text(name) == text


@given(st.datetimes(timezones=st.just(UTC)), st.uuids(), st.text())
@effort(200)
def test_what_is_given_out_is_read(created_at: datetime, job_id: UUID, name: str) -> None:
    place = Cursor(created_at, job_id)
    assert read_cursor(cursor_text(place)) == place
    assert read_name_cursor(name_cursor_text(name)) == name


@given(texts(GIVEN))
@effort(100)
def test_whatever_is_read_leads_somewhere(runner: asyncio.Runner, text: str) -> None:
    place = tried(read_cursor, text)
    if place is None:
        return
    store = open_store("memory://", clock=SystemClock())

    async def find() -> None:
        await store.open()
        await store.find(JobFilter(tenant_id=None), limit=1, after=place)

    runner.run(find())


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("part", ["A", "=", "-_", "\x00", "é", " "])
def test_a_long_text_takes_bounded_time_and_memory(read: Callable[[str], Any], part: str) -> None:
    text = part * 200_000
    with in_bounds(len(text)):
        tried(read, text)
