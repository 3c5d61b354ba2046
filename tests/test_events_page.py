"""What docs/events.md tells is so."""

import re
from pathlib import Path

import pytest

from gantline.consumers.consumers import EVENT_TYPES
from gantline.consumers.event_reader import CONSUMER_LEASE, PAGE
from gantline.contract.domain_event import EMITTED_LIMIT, MOST_EMITTED
from gantline.contract.status import ON_REQUEST, TRANSITIONS, Event, JobStatus
from gantline.worker.context import EVENTS_A_RUN
from tests.test_documentation import Shell, modules, page, steps

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

TEXT = page("events.md")
DRIVER = """
import asyncio

from shop import Order, jobs, ship, shipped
from warehouse import warehouse


async def main() -> None:
    async with jobs, jobs.running():
        await (await ship.submit(Order("o-1"))).wait(timeout=60)
        async with asyncio.timeout(60):
            while not shipped or len(warehouse.rows) < 3:
                await asyncio.sleep(0.01)
    print(shipped, len(warehouse.rows))


asyncio.run(main())
"""


def test_the_snippets_and_commands_do_what_is_said(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write(modules(TEXT) | {"drive.py": DRIVER})
    assert shell.run("python drive.py") == "['o-1'] 3"
    for tests in ("test_shop.py", "test_depot.py"):
        assert "1 passed" in shell.run(f"python -m pytest -q {tests}")
    listing, deletion = [step.command for step in steps(TEXT)]
    assert "shop.notify_the_customer" in shell.run(listing)
    assert "shop.page-the-operator" in shell.run(deletion)
    assert "shop.page-the-operator" not in shell.run(listing)


def test_every_event_is_listed_with_where_it_leads() -> None:
    rows = re.findall(r"^\| `(job\.\w+)` \| (.+) \| (\w+) \|$", TEXT, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(EVENT_TYPES)
    for name, when, status in rows:
        event = Event(name.removeprefix("job."))
        assert ("if its type asks" in when) == (event in ON_REQUEST)
        leads_to = {to for _, move, to in TRANSITIONS if move is event}
        assert not leads_to or leads_to == {JobStatus(status)}


def test_the_numbers_are_ours() -> None:
    assert f"at most {EVENTS_A_RUN} times a run" in TEXT
    assert f"of {PAGE} events at most" in TEXT
    assert f"at most {MOST_EMITTED} events and" in TEXT
    assert f"{EMITTED_LIMIT // 1024} KiB of JSON" in TEXT
    assert f"({CONSUMER_LEASE.total_seconds():g} seconds)" in TEXT
