"""What a benchmark is given: a folder on a real disk, the sizes, the report, and seeded files."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Report
from benchmarks.scale import Scale
from benchmarks.seeding import Group, seed
from benchmarks.stores import remove_database


class Bench:
    """One run of the command."""

    def __init__(self, folder: Path, scale: Scale, report: Report) -> None:
        self.folder = folder
        self.scale = scale
        self.report = report
        self._seeded: dict[tuple[Group, ...], Path] = {}

    @contextmanager
    def empty_file(self) -> Iterator[Path]:
        """A path for a new database, which is removed afterwards."""
        path = self.folder / "empty.db"
        gc.collect()  # what the last run left behind is not this run's cost
        try:
            yield path
        finally:
            remove_database(path)

    def seeded_file(self, *groups: Group) -> Path:
        """A database with these jobs: made once, then shared. Users leave as many as they found."""
        if groups not in self._seeded:
            path = self.folder / f"seeded-{len(self._seeded)}.db"
            seed(path, groups)
            self._seeded[groups] = path
        return self._seeded[groups]
