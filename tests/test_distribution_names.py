"""Whoever follows a hint or a page installs our distribution: another name is another's code."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[1]
PROJECT: Final = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
OURS: Final = PROJECT["name"]
EXTRAS: Final = frozenset(PROJECT["optional-dependencies"])
# What pages need beside ours.
OTHERS: Final = frozenset({"fastapi", "pytest", "pytest-asyncio", "tzdata", "uvicorn"})

PLACES: Final = ("*.md", "pyproject.toml", "docs/**/*", "examples/**/*", "scripts/**/*", "src/**/*")
KINDS: Final = frozenset({".html", ".js", ".json", ".md", ".py", ".sql", ".toml", ".txt", ".yaml"})

COMMAND: Final = re.compile(
    r"\b(?:(?:pip3?|pipx|uv[ ]tool)[ ](?:install|run|upgrade)|(?:uv|poetry|pdm)[ ]add|uvx)\b"
)
REQUIREMENT: Final = re.compile(
    r"""[ ]+(?:-{1,2}[\w-]+[ ]+)*["']?(?P<name>[\w./-]+)(?:\[[^\]]*\])?[^\s`"']*["']?"""
)
OUR_EXTRAS: Final = re.compile(rf"(?:\b{OURS}|'\.)\[(?P<extras>[\w, -]+)\]")


def installed_by(text: str) -> Iterator[str]:
    """What commands in a text install: names, and paths, which begin with a dot."""
    for command in COMMAND.finditer(text):
        end = command.end()
        while found := REQUIREMENT.match(text, end):
            end = found.end()
            yield found["name"]


def texts() -> Iterator[tuple[str, str]]:
    for place in PLACES:
        for path in sorted(REPOSITORY.glob(place)):
            if path.is_file() and path.suffix in KINDS:
                yield str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")


def test_every_install_command_names_our_distribution_or_a_known_one() -> None:
    named = {(path, name) for path, text in texts() for name in installed_by(text)}
    assert len(named) > 15, "the commands are not found any more"
    known = OTHERS | {OURS}
    strange = {(path, name) for path, name in named if name not in known and name[0] != "."}
    assert strange == set()


def test_every_distribution_that_is_known_is_needed_by_a_page() -> None:
    named = {name for _, text in texts() for name in installed_by(text)}
    assert named >= OTHERS


def test_every_extra_that_is_named_exists() -> None:
    named = {
        (path, extra.strip())
        for path, text in texts()
        for found in OUR_EXTRAS.finditer(text)
        for extra in found["extras"].split(",")
    }
    assert len(named) > 10, "the extras are not found any more"
    assert {(path, extra) for path, extra in named if extra not in EXTRAS} == set()


@pytest.mark.parametrize(
    ("text", "installed"),
    [
        ("Run `pip install gantline`.", ["gantline"]),
        ("Run `python -m pip install -U 'other[api]'`.", ["other"]),
        ("needs it: pip install 'gantline[api]'.", ["gantline"]),
        ("$ pip install 'gantline[api]>=1' fastapi  # and more", ["gantline", "fastapi"]),
        ("pip install '../gantline[api]' '.[api]'", ["../gantline", "."]),
        ("`uv add other`, `uv pip install other`, `uvx other`", ["other", "other", "other"]),
        ("`uv tool install other` or `pipx run other`", ["other", "other"]),
        ("f\"Run `pip install 'gantline[{extra}]'`.\"", ["gantline"]),
    ],
)
def test_install_commands_are_found_in_every_form(text: str, installed: list[str]) -> None:
    assert list(installed_by(text)) == installed
