"""Numbered migrations: read from a package, checked against what a database has had, planned.

Each store begins with one baseline, number 1. From there on a change is a step of its own, and a
step that was released is never edited. Its first line says with which code it works, by the last
migration that this code knows:

    -- Works with code of migration 3.

So processes of an older version may continue during an upgrade, where it names their number or a
lower one; all others refuse the database. A baseline works with no code but its own.

How a plan is carried out is each store's own; that it is complete, unaltered and not older than the
database is decided here.
"""

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple, Protocol

from gantline.contract.errors import SchemaMismatch, StoreMisconfigured
from gantline.contract.store import JobStore

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_WORKS_WITH = re.compile(r"-- Works with code of migration (\d+)\.\n")


class Migration(NamedTuple):
    """One step of the schema. The checksum of its text keeps history from being rewritten."""

    number: int
    name: str
    sql: str

    @property
    def works_with(self) -> int:
        """The oldest code that works with this step, by the last migration that it knows."""
        found = _WORKS_WITH.match(self.sql)
        return int(found[1]) if found else self.number

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


class AppliedMigration(NamedTuple):
    """A step that a database has had."""

    number: int
    name: str
    checksum: str
    works_with: int


def load_migrations(package: str) -> list[Migration]:
    """Read the numbered .sql files of a store's package, in order and without a gap."""
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in files(package).joinpath("migrations").iterdir()
        if (match := _FILE.fullmatch(file.name))
    ]
    found.sort()
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(numbers) + 1)):
        raise SchemaMismatch(f"The migrations of {package} are numbered {numbers}, with a gap.")
    return found


def plan(known: Sequence[Migration], applied: Sequence[AppliedMigration]) -> list[Migration]:
    """Find what is still to be applied; refuse a database that this code must not touch."""
    newer = applied[len(known) :]
    if any(step.works_with > len(known) for step in newer):
        raise SchemaMismatch(
            f"The database has schema {applied[-1].number} ({applied[-1].name}); this version of "
            f"Gantline knows {len(known)}.",
            next_step="Upgrade Gantline to at least the version that wrote it.",
        )
    for ours, theirs in zip(known, applied, strict=False):
        if (ours.number, ours.checksum) != (theirs.number, theirs.checksum):
            raise SchemaMismatch(
                f"Migration {theirs.number} ({theirs.name}) was applied with another text than "
                f"this version of Gantline has.",
                next_step="Use the Gantline that wrote it, or restore the database from a backup.",
            )
    return list(known[len(applied) :])


class Migrator(Protocol):
    """The schema of a store that has one. Usable without opening the store."""

    @property
    def known(self) -> list[Migration]:
        """The steps of this version of Gantline."""
        ...

    async def applied(self) -> list[AppliedMigration]:
        """Say which steps the database has had; change nothing."""
        ...

    async def migrate(self) -> list[Migration]:
        """Apply what is missing, and return it; safe with several processes."""
        ...

    def script(self, steps: Sequence[Migration]) -> str:
        """Write SQL that applies these steps and records them, to be run by hand."""
        ...


def migrator_of(store: JobStore) -> Migrator:
    """Get the migrator of a store; raise StoreMisconfigured where it has no schema."""
    migrator: Migrator | None = getattr(store, "migrator", None)
    if migrator is None:
        raise StoreMisconfigured("This store has no schema.", next_step="A SQL store has one.")
    return migrator
