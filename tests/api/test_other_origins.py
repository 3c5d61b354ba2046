"""A page of another origin changes nothing: where no credentials are sent, its browser could."""

import pytest
from fastapi import FastAPI

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.auth.authenticator import Credentials
from gantline.auth.principal import Principal
from tests.api.application import PRINCIPALS, AuditKept, ByName
from tests.api.conftest import asker_of
from tests.api.test_submit import MAIL


class BySession:
    """Cookie: session=<one of PRINCIPALS>, which a browser sends by itself."""

    challenge = 'Bearer realm="test"'

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        return PRINCIPALS.get(credentials.cookies.get("session", ""))


PAUSE = "/api/queues/default/pause"
SHOP = "https://shop.example"
ELSEWHERE = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://other.api.test"},
    {"origin": "https://evil.example"},
    {"origin": "http://api.test:81"},
    {"origin": "null"},
]
HERE: list[dict[str, str]] = [
    {},
    {"sec-fetch-site": "same-origin", "origin": "https://public.example"},
    {"sec-fetch-site": "none"},
    {"origin": "http://api.test"},
]


@pytest.mark.parametrize("headers", ELSEWHERE)
async def test_a_page_elsewhere_changes_nothing(jobs: Gantline, headers: dict[str, str]) -> None:
    async with asker_of(jobs.api(allow_anonymous=True)) as ask:
        for path, body in ((PAUSE, None), ("/api/jobs", MAIL)):
            response = await ask(None, "POST", path, body, headers=headers)
            assert (response.status_code, response.json()["errorCode"]) == (403, "FORBIDDEN")
            assert "another origin" in response.json()["detail"]
        assert (await ask(None, "GET", "/api/jobs", headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", ELSEWHERE)
async def test_what_a_page_elsewhere_tried_is_audited_as_its_users(
    jobs: Gantline, audit: AuditKept, headers: dict[str, str]
) -> None:
    async with asker_of(jobs.api(authenticator=BySession(), audit=audit)) as ask:
        sent = headers | {"cookie": "session=alice"}
        assert (await ask(None, "POST", "/api/jobs", MAIL, headers=sent)).status_code == 403
        (entry,) = audit.entries
        assert (entry.actor, entry.actor_tenant) == ("user:alice", "acme")
        assert (entry.operation, entry.outcome) == ("submitJob", "forbidden")
        assert entry.what == f"origin:{headers.get('origin', '?')}"
        assert (await ask(None, "POST", "/api/jobs", MAIL, headers=headers)).status_code == 401


@pytest.mark.parametrize("headers", HERE)
async def test_a_page_of_ones_own_does(jobs: Gantline, headers: dict[str, str]) -> None:
    async with asker_of(jobs.api(allow_anonymous=True)) as ask:
        assert (await ask(None, "POST", "/api/jobs", MAIL, headers=headers)).status_code == 202


@pytest.mark.parametrize("headers", ELSEWHERE)
async def test_what_no_browser_sends_by_itself_may_come_from_everywhere(
    jobs: Gantline, headers: dict[str, str]
) -> None:
    async with asker_of(jobs.api(authenticator=ByName())) as ask:
        assert (await ask("alice", "POST", "/api/jobs", MAIL, headers=headers)).status_code == 202


async def test_an_origin_that_was_named_may(jobs: Gantline) -> None:
    settings = ApiSettings(cors_origins=(SHOP,))
    headers = {"origin": SHOP, "sec-fetch-site": "cross-site"}
    async with asker_of(jobs.api(allow_anonymous=True, settings=settings)) as ask:
        assert (await ask(None, "POST", "/api/jobs", MAIL, headers=headers)).status_code == 202


async def test_it_holds_for_a_router_too(jobs: Gantline) -> None:
    web = FastAPI()
    web.include_router(jobs.router(allow_anonymous=True))
    async with asker_of(web) as ask:
        response = await ask(None, "POST", PAUSE, headers={"sec-fetch-site": "cross-site"})
        assert "another origin" in response.json()["detail"]
