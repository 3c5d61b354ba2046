"""A chain of ten thousand events is proved in seconds, whether its blocks are small or large."""

import time

import pytest

from gantline.audit.chain import FIRST_PREVIOUS, AuditEvent, chain_event, make_write
from gantline.contract.records import RecordWrite
from tests.audit.conftest import TENANT, Trail, draft

EVENTS = 10_000
MOST_SECONDS = 10.0


def blocks(trail: Trail, size: int) -> list[RecordWrite]:
    """A chain as it would be written, without waiting for each."""
    previous, writes = FIRST_PREVIOUS, []
    for start in range(1, EVENTS + 1, size):
        block: list[AuditEvent] = []
        for version in range(start, start + size):
            event = chain_event(
                draft(version),
                tenant_id=TENANT,
                version=version,
                time=trail.clock.now(),
                previous_hash=previous,
            )
            previous = event.hash
            block.append(event)
        writes.append(make_write(block))
    return writes


@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", [1, 100])
async def test_ten_thousand_events_are_verified_in_seconds(sql_trail: Trail, size: int) -> None:
    writes = blocks(sql_trail, size)
    for start in range(0, len(writes), 1000):
        await sql_trail.store.write_records(writes[start : start + 1000])
    begun = time.monotonic()
    result = await sql_trail.verified()
    took = time.monotonic() - begun
    assert (result.events, result.findings) == (EVENTS, [])
    assert took < MOST_SECONDS
