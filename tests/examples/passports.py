"""What the tests of the battery passport share: samples, and all rows that there are."""

from pathlib import Path
from typing import Any, Final

from examples.battery_passport.books import Books
from examples.battery_passport.intake import receive
from windlass import Handle, Windlass

SAMPLES: Final = Path(__file__).parents[2] / "examples" / "battery_passport" / "samples"
SIGNING_KEY: Final = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
STEPS: Final = (
    "PARSE_FACTS",
    "BUILD_SNAPSHOT",
    "COMPILE_PASSPORT",
    "SIGN_PASSPORT",
    "GENERATE_QR",
    "EXPORT_PASSPORT",
)
TABLES: Final = (
    "document",
    "reading",
    "fact",
    "reading_fact",
    "snapshot",
    "snapshot_fact",
    "rule_package",
    "passport_version",
    "signature",
    "artefact",
)
RECEIVED: Final = "2026-11-15T12:00:00.000000Z"

Rows = dict[str, list[tuple[Any, ...]]]


def documents(sample: str) -> list[Path]:
    return sorted(SAMPLES.glob(f"{sample}-*"))


async def upload(
    jobs: Windlass, sample: str, *, tenant: str = "aurora"
) -> list[Handle[dict[str, Any]]]:
    """All documents of a sample, received at an instant that is always the same."""
    return [
        await receive(jobs, file.name, file.read_bytes(), tenant=tenant, now=RECEIVED)
        for file in documents(sample)
    ]


async def all_rows(jobs: Windlass) -> Rows:
    """Everything that the application keeps, byte for byte."""
    async with jobs.transaction() as connection:
        books = Books(connection)
        found: Rows = {}
        for table in TABLES:
            rows = await books._rows(f"SELECT * FROM {table}")  # noqa: S608  # names from above
            found[table] = sorted(tuple(row) for row in rows)
    return found
