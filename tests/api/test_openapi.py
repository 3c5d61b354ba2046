"""The OpenAPI document: made of what is served, checked in, and kept by every answer."""

import hashlib
import itertools
import re
import runpy
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.api.application import Api
from gantline.api.problems import KINDS
from gantline.api.streams.settings import StreamSettings
from gantline.auth.peppers import Peppers
from gantline.auth.stream_tokens import StreamTokens
from gantline.contract.clock import SystemClock
from tests.api.application import AuditKept, ByName, make_jobs
from tests.api.conftest import Asker, asker_of
from tests.api.serving import served

ROOT = Path(__file__).parent.parent.parent
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ROLES = (None, "alice", "mailer", "viewer", "operator", "admin", "eve", "system")
_IN_TURN = itertools.cycle(ROLES)


def test_the_document_that_is_checked_in_is_what_is_served() -> None:
    text = runpy.run_path(str(ROOT / "scripts" / "openapi.py"))["text"]()
    kept = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert kept == text, "The API has changed: run `python scripts/openapi.py`."


def test_every_operation_is_documented_once(api: Api) -> None:
    names = [operation.name for operation in api.operations]
    assert len(names) == len(set(names))
    documented = {
        one["operationId"] for path in api.openapi["paths"].values() for one in path.values()
    }
    assert documented == set(names)


async def test_it_is_served_to_everybody_and_so_is_its_page(ask: Asker, api: Api) -> None:
    assert (await ask(None, "GET", "/api/openapi.json")).json() == api.openapi
    page = await ask(None, "GET", "/api/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name in ("/api/jobs/{jobId}/status", "JobToSubmit", "StatusDocument"):
        assert name in page.text


@pytest.mark.parametrize("path", ["/api/docs", "/api/problems", "/api/problems/queue-full"])
async def test_a_page_needs_nothing_from_elsewhere_and_runs_no_script(
    ask: Asker, path: str
) -> None:
    page = await ask(None, "GET", path)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert "unsafe" not in policy
    for foreign in ("<script", "http://", "https://", "javascript:", "onclick", "<img", "style="):
        assert foreign not in page.text
    style = page.text.split("<style>")[1].split("</style>")[0]
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy


async def test_every_type_of_problem_has_its_page(ask: Asker) -> None:
    for kind in KINDS.values():
        page = await ask(None, "GET", f"/api/problems/{kind.slug}")
        assert page.status_code == 200
        assert kind.code in page.text
    problem = (await ask(None, "GET", "/api/nothing")).json()
    assert (await ask(None, "GET", problem["type"])).status_code == 200
    assert (await ask(None, "GET", "/api/problems/nonsense")).status_code == 404


async def test_the_documentation_can_be_left_out(jobs: Gantline) -> None:
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(show_documentation=False))
    async with asker_of(api) as ask:
        for path in ("/api/docs", "/api/openapi.json"):
            assert (await ask(None, "GET", path)).status_code == 404
        assert (await ask(None, "GET", "/api/problems/not-found")).status_code == 200


# -- as each role, with whatever can be sent ------------------------------------------------------


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = make_jobs("memory://").api(
        authenticator=ByName(),
        audit=AuditKept(),
        # A stream would be waited for to its end.
        settings=ApiSettings(streams=StreamSettings(longest_seconds=0.05)),
        stream_tokens=StreamTokens(Peppers.random(), clock=SystemClock()),
    )
    with served(app) as url:
        for who in ("alice", "eve"):
            for name in ("a", "b"):
                body = {"jobType": "document-indexing", "payload": {"documentId": name}}
                headers = {"authorization": f"Bearer {who}"}
                httpx2.post(f"{url}/api/jobs", json=body, headers=headers).raise_for_status()
        yield url


@pytest.fixture(scope="module")
def known_job(url: str) -> str:
    found = httpx2.get(f"{url}/api/jobs", headers={"authorization": "Bearer alice"}).json()
    job_id: str = found["items"][0]["jobId"]
    return job_id


@pytest.fixture(scope="module")
def api_schema(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/api/openapi.json")


schema = schemathesis.pytest.from_fixture("api_schema")


@pytest.mark.wide
@pytest.mark.xdist_group("schemathesis")
@pytest.mark.timeout(600)
@schema.parametrize()
@settings(
    max_examples=4,  # with some ten calls each
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_no_answer_is_undocumented_and_none_is_our_fault(case: Any, known_job: str) -> None:
    """As it comes, by the roles in turn; then with names that there are, by each of them."""
    case.call_and_validate(headers=_credentials(next(_IN_TURN)), checks=CHECKS)
    _make_likely(case, known_job)
    for who in ROLES:
        case.call_and_validate(headers=_credentials(who), checks=CHECKS)


def _credentials(who: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {who}"} if who else {}


def _make_likely(case: Any, known_job: str) -> None:
    if case.path_parameters and "jobId" in case.path_parameters:
        case.path_parameters["jobId"] = known_job
    if isinstance(case.body, dict) and "jobType" in case.body:
        case.body["jobType"] = "sweep"
        case.body.pop("payload", None)


async def test_a_link_of_the_page_leads_to_what_a_browser_unfolds(ask: Asker) -> None:
    """A browser unfolds what is within a fold, not the fold that is itself led to."""
    text = (await ask(None, "GET", "/api/docs")).text
    assert not re.findall(r"<details id=", text)
    linked = set(re.findall(r'href="#(\w+)"', text))
    assert linked <= set(re.findall(r'<table id="(\w+)"', text))
    assert '<table id="JobStatus"><tr><td>Cancelled or Completed or ' in text
