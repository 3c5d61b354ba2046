"""What docs/client.md tells is so."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gantline.client.blocking import Client
from tests.servers.http_api import ApiProcess

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")


# The server of these tests writes its fields in camel case.
PAGE = PAGE.replace('"document_id"', '"documentId"')


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_snippets_run_against_a_server(
    working: ApiProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANTLINE_URL", working.url)
    monkeypatch.setenv("GANTLINE_API_KEY", "alice")
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "client.md", "exec"), names)  # noqa: S102  # it is our own
    assert capsys.readouterr().out == "Completed {'pages': 3}\n"
    asyncio.run(names["index"]("d5"))
    assert capsys.readouterr().out.splitlines()[-1].split()[0] in ("completed", "state")


def test_the_commands_run_against_a_server(working: ApiProcess) -> None:
    environment = os.environ | {"GANTLINE_URL": working.url, "GANTLINE_API_KEY": "operator"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    commands = re.findall(r"^\$ (gantline .+)$", PAGE, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            env=environment | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_every_verb_is_told() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE))
    verbs = {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert verbs <= told
