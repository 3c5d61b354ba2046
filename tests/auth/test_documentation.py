"""What docs/authentication.md tells is true: its table, its Python, its commands."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gantline import Gantline
from gantline.auth.action import Action
from gantline.auth.api_key import PATTERN
from gantline.auth.authenticator import AllowAnonymous, AnyOf, Credentials
from gantline.auth.authorizer import DefaultAuthorizer, Target
from gantline.auth.peppers import PEPPER_VARIABLE
from gantline.auth.principal import Principal, Role

PAGE = (Path(__file__).parents[2] / "docs" / "authentication.md").read_text(encoding="utf-8")
COLUMNS = (None, Role.VIEWER, Role.OPERATOR, Role.ADMIN)


async def reach(action: Action, role: Role | None) -> str:
    """How far a right goes, in the words of the table."""
    roles = frozenset({role} if role else ())
    own = Target(tenant_id="a", job_type="t", owner="me")
    other = Target(tenant_id="a", job_type="t", owner="you")
    may = DefaultAuthorizer().may
    me = Principal(id="me", tenant_id="a", roles=roles)
    operating = Principal(id="me", tenant_id="a", roles=roles, is_system=True)
    if action in (Action.SUBMIT, Action.READ_TYPES):
        return "yes" if await may(me, action, own) else "–"
    if await may(me, action, other):
        return "tenant"
    if await may(operating, action, other):
        return "system"
    return "own" if await may(me, action, own) else "–"


async def test_the_table_says_what_is_decided() -> None:
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| ([A-Z_]+) \| `(.+?)` \| (.+) \|$", PAGE, re.M)
    }
    assert set(rows) == set(Action.__members__)
    for name, (scope, cells) in rows.items():
        action = Action[name]
        assert scope == action
        assert cells.split(" | ") == [await reach(action, role) for role in COLUMNS], name


async def test_the_python_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEPPER_VARIABLE, "1:0123456789abcdefghijklmnopqrstuvwxyz")
    monkeypatch.setenv("TOKEN_SECRET", "0123456789abcdefghijklmnopqrstuvwxyz")
    names: dict[str, Any] = {"jobs": Gantline("memory://"), "sessions": {"x": "ada"}}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(block, "authentication.md", "exec"), names)  # noqa: S102  # our own page
    door = names["any_of_them"]
    assert isinstance(door, AnyOf)
    assert isinstance(names["open_to_all"], AllowAnonymous)
    ada = await door.authenticate(Credentials(cookies={"session": "x"}))
    assert ada == Principal(id="user:ada", tenant_id="shop")
    assert not await door.authenticate(Credentials())


def test_the_commands_work(tmp_path: Path) -> None:
    commands = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
    bin_folder = Path(sys.executable).parent
    ours = {name: text for name, text in os.environ.items() if "GANTLINE" not in name}
    script = "\n".join(
        [
            "set -eu",
            *commands[:5],
            "KEY_ID=$(gantline key list | sed -n '2s/ .*//p')",
            *commands[5:],
        ]
    ).replace(" KEY_ID", " $KEY_ID")
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=ours | {"PATH": f"{bin_folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(PATTERN, done.stdout)) == 5
    assert "revoked" in done.stdout


def test_the_pattern_is_the_one_that_keys_have() -> None:
    assert PATTERN in PAGE
