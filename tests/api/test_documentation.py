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
    assert f"nothing comes for {settings.body_stall_seconds:g} s" in limits
    assert f"longer than {settings.body_seconds:g} s, is given up" in limits
    assert f"{settings.turns} requests of a tenant" in limits
    assert f"32 KiB) {settings.long_turns} (" in limits
    assert f", {settings.turns_beside_others} of each go on at once" in limits
    assert f"longer than {1000 * settings.slow_code_seconds:g} ms" in limits
    assert f"after {settings.code_timeout_seconds:g} s (`code" in limits
    for name, share in (
        ("requests", settings.requests),
        ("bodies", settings.bodies),
        ("waits", settings.waits),
        ("streams.open", settings.streams.open),
    ):
        numbers = f"{share.of_principal} | {share.of_tenant} | {share.in_process}"
        assert f"(`{name}`) | {numbers} |" in limits
    here = settings.rate_limits.per_key_here
    assert here is not None
    assert f"{here.per_second:g}\nrequests a second of a key, {here.burst} at once" in limits
