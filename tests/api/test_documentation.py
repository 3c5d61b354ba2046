"""What docs/http.md tells is so."""

from pathlib import Path
from typing import Any

from gantline.api import ApiSettings
from gantline.api.application import Api
from tests.api.conftest import asker_of
from tests.test_documentation import blocks

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "http.md").read_text(encoding="utf-8")


async def test_the_code_runs_and_serves() -> None:
    names: dict[str, Any] = {}
    for block in blocks(TEXT, "python"):
        exec(compile(block, "http.md", "exec"), names)  # noqa: S102  # it is our own
    async with names["jobs"], asker_of(names["web"]) as ask:
        for path in ("/documents/d1/analysis", "/analyze-all"):
            response = await ask._client.post(path)
            assert response.status_code == 202, response.text
            status = await ask(None, "GET", response.json()["statusUrl"])
            assert status.status_code == 200
        async with asker_of(names["app"]) as other:
            assert (await other(None, "POST", "/documents/d1/analysis")).status_code == 401


def test_every_path_is_told(api: Api) -> None:
    table = TEXT.partition("## What there is")[2].partition("## When")[0]
    for path in api.openapi["paths"]:
        if not path.startswith(("/api/problems", "/api/docs", "/api/openapi")):
            assert f"{path}`" in table or _is_told_shortly(path, table), path


def _is_told_shortly(path: str, table: str) -> bool:
    """As `…/last` in a line that begins with the same words."""
    start = path.split("/{")[0] if "/{" in path else path.rpartition("/")[0]
    last = f"…/{path.rpartition('/')[2]}`"
    return any(start in line and last in line for line in table.splitlines())


def test_the_limits_are_those_of_the_settings() -> None:
    limits = TEXT.partition("## Limits")[2]
    settings = ApiSettings()
    assert f"{settings.max_body_bytes // 2**20} MiB a body" in limits
    assert f"{settings.request_timeout_seconds:g} s a request" in limits
    assert f"{settings.most_at_once} requests at once" in limits
    assert f"{settings.most_waiting} of them waiting" in limits
