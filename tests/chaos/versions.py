"""An older version of the code that works on the same schema."""

import io
import subprocess
import tarfile
from pathlib import Path
from shutil import copytree, rmtree
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_SOURCE: Final = "src/gantline"
_SCHEMAS: Final = tuple(
    f"{_SOURCE}/stores/{folder}"
    for folder in ("postgres/migrations", "sqlite/migrations", "redis/scripts")
)
# What records and drives the processes is today's on both, with what it needs and older code lacks.
_TOOLS: Final = ("proof", "proving")
_NEEDED: Final = ("runtime.py", "contract/job_id.py")


def unpack_older(folder: Path) -> tuple[Path, str]:
    """Put the oldest code with today's schema into a folder; return its modules and its commit."""
    commit = _git("log", "-1", "--format=%H", "--", *_SCHEMAS).decode().strip()
    if not commit:
        pytest.skip("there is no history of the code here")
    if not _git("diff", "--name-only", commit, "HEAD", "--", _SOURCE):
        pytest.skip("the code has not changed since the schema did")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, _SOURCE))) as archive:
        archive.extractall(folder, filter="data")
    package, ours = folder / _SOURCE, _ROOT / _SOURCE
    for tool in _TOOLS:
        rmtree(package / tool, ignore_errors=True)
        copytree(ours / tool, package / tool)
    for name in _NEEDED:
        (package / name).write_bytes((ours / name).read_bytes())
    return package.parent, commit[:7]


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"there is no history of the code here: {done.stderr.decode().strip()}")
    return done.stdout
