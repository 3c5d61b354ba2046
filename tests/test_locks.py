"""Developers, CI and the demo install only files whose hashes are locked."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.servers.api import REPOSITORY

_LOCKS: Final = {"developers": ("all", "dev"), "demo": ("api", "webhooks", "examples")}
_REQUIREMENT: Final = re.compile(r"^([A-Za-z0-9._-]+)==\S+(?: ;[^\\]*)? \\$")
_HASH: Final = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")


def _hashes(lock: str) -> dict[str, int]:
    """How many hashes each package of a lock has; fails at a line that is neither."""
    hashes: dict[str, int] = {}
    name = ""
    for line in (REPOSITORY / "locks" / f"{lock}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        if found := _REQUIREMENT.match(line):
            name = _normal(found[1])
            hashes.setdefault(name, 0)
        else:
            assert _HASH.match(line), line
            hashes[name] += 1
    return hashes


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(extras: tuple[str, ...]) -> set[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    left = list(extras)
    names = set()
    while left:
        lines += project["optional-dependencies"][left.pop()]
        own = [line for line in lines if line.startswith("gantline[")]
        lines = [line for line in lines if line not in own]
        left += [extra for line in own for extra in line[len("gantline[") : -1].split(",")]
    for line in lines:
        found = re.match(r"[A-Za-z0-9._-]+", line)
        assert found is not None
        names.add(_normal(found[0]))
    return names


@pytest.mark.parametrize("lock", _LOCKS)
def test_every_package_of_a_lock_has_one_version_and_its_hashes(lock: str) -> None:
    assert all(_hashes(lock).values())


@pytest.mark.parametrize(("lock", "extras"), _LOCKS.items())
def test_a_lock_has_all_that_the_project_requires(lock: str, extras: tuple[str, ...]) -> None:
    assert _required(extras) <= set(_hashes(lock))


def test_the_setup_refuses_what_is_not_locked() -> None:
    lines = Path(REPOSITORY, "scripts", "setup").read_text().splitlines()
    locked = [line for line in lines if "--requirement" in line]
    own = [line for line in lines if "--editable" in line]
    assert locked
    assert all("--require-hashes" in line for line in locked)
    assert own
    assert all("--no-deps" in line for line in own)
