"""What the tests of the battery passport share: samples, and all rows that there are."""

from pathlib import Path
from typing import Any, Final

from examples.battery_passport.books import Books
from examples.battery_passport.intake import receive
from gantline import Gantline, Handle
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import JobSnapshot

SAMPLES: Final = Path(__file__).parents[2] / "examples" / "battery_passport" / "samples"
SIGNING_KEY: Final = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
TENANT: Final = "aurora"
RECEIVED: Final = "2026-11-15T12:00:00.000000Z"
JOBS_OF_A_SAMPLE: Final = {
    "PARSE_FACTS": 3,
    "BUILD_SNAPSHOT": 3,
    "COMPILE_PASSPORT": 1,
    "SIGN_PASSPORT": 1,
    "GENERATE_QR": 1,
    "EXPORT_PASSPORT": 1,
}
# Open snapshots depend on which document was read first; all else is always the same.
_LASTING: Final = {
    "document": "SELECT * FROM document",
    "reading": "SELECT * FROM reading",
    "fact": "SELECT * FROM fact",
    "reading_fact": "SELECT * FROM reading_fact",
    "snapshot": "SELECT * FROM snapshot WHERE status = 'SEALED'",
    "snapshot_fact": "SELECT snapshot_fact.* FROM snapshot_fact JOIN snapshot"
    " USING (tenant_id, snapshot_id) WHERE status = 'SEALED'",
    "rule_package": "SELECT * FROM rule_package",
    "passport_version": "SELECT * FROM passport_version",
    "signature": "SELECT * FROM signature",
    "artefact": "SELECT * FROM artefact",
}

Rows = dict[str, list[tuple[Any, ...]]]


def documents(sample: str) -> list[Path]:
    return sorted(SAMPLES.glob(f"{sample}-*"))


async def upload(
    jobs: Gantline, sample: str, *, tenant: str = TENANT
) -> list[Handle[dict[str, Any]]]:
    """All documents of a sample, received at an instant that is always the same."""
    return [
        await receive(jobs, file.name, file.read_bytes(), tenant=tenant, now=RECEIVED)
        for file in documents(sample)
    ]


async def lasting_rows(jobs: Gantline) -> Rows:
    """Everything that the application keeps, byte for byte."""
    async with jobs.transaction() as connection:
        books = Books(connection)
        return {
            table: sorted(tuple(row) for row in await books._rows(sql))
            for table, sql in _LASTING.items()
        }


async def all_jobs(jobs: Gantline, tenant: str = TENANT) -> list[JobSnapshot]:
    """A tenant's jobs, oldest first."""
    page = await jobs.store.find(JobFilter(tenant_id=tenant), limit=200)
    assert page.next is None
    return list(reversed(page.items))
