"""Stream tokens: a browser's EventSource sends no headers, and an API key never goes into a URL."""

from datetime import timedelta
from typing import Any

import pytest

from gantline import Gantline
from gantline.api.application import Api
from gantline.auth.api_key import KeyGrant
from gantline.auth.api_key_authenticator import ApiKeyAuthenticator
from gantline.auth.api_keys import ApiKeys
from gantline.auth.authenticator import AnyOf
from gantline.auth.peppers import PEPPER_VARIABLE, Peppers, new_pepper
from gantline.auth.principal import Role
from gantline.auth.stream_tokens import StreamTokens
from gantline.testing.clock import FakeClock
from tests.api.application import AuditKept, ByName
from tests.api.conftest import Asker, asker_of
from tests.api.playing import claim, success
from tests.api.streams.event_stream import Listener, listening_to
from tests.api.streams.playing import HASTY, names, new_job, run_all, sealed, settle
from tests.api.test_submit import DOCUMENT, OTHER

PEPPERS = Peppers.read(f"1:{new_pepper()}")
MINUTE = timedelta(seconds=61)


@pytest.fixture
def api(jobs: Gantline, audit: AuditKept, clock: FakeClock) -> Api:
    tokens = StreamTokens(PEPPERS, clock=clock)
    return jobs.api(authenticator=ByName(), audit=audit, settings=HASTY, stream_tokens=tokens)


async def token_for(ask: Asker, job_id: str | None = None, who: str = "alice") -> dict[str, Any]:
    path = "/api/events" if job_id is None else f"/api/jobs/{job_id}/events"
    response = await ask(who, "POST", f"{path}/token")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    assert found["url"] == f"{path}?token={found['token']}"
    return {**found, "cookie": response.headers["set-cookie"]}


async def test_a_token_opens_the_stream_of_its_job(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    job_id = await new_job(ask)
    token = await token_for(ask, job_id)
    stream = await listen(None, token["url"])
    assert (await stream.hears()).shown == ("state", "Queued")
    await run_all(jobs)
    assert names(await stream.ends())[-1] == "completed"
    again = await listen(None, token["url"], last=await sealed(jobs, 1))
    assert again.status == 204


async def test_a_token_opens_the_stream_of_many_as_who_asked_for_it(
    ask: Asker, listen: Listener, jobs: Gantline
) -> None:
    mine, other = await new_job(ask), await new_job(ask, OTHER, "bob")
    token = await token_for(ask)
    stream = await listen(None, token["url"])
    assert (await stream.hears()).data["jobId"] == mine
    await run_all(jobs)
    await stream.hears_up_to(jobs, 2)
    assert other not in stream.body.decode()


async def test_a_token_is_for_one_stream_only(ask: Asker, listen: Listener) -> None:
    job_id, other = await new_job(ask), await new_job(ask, OTHER)
    of_job, of_all = (await token_for(ask, job_id))["token"], (await token_for(ask))["token"]
    for path in (
        f"/api/jobs/{other}/events?token={of_job}",
        f"/api/events?token={of_job}",
        f"/api/jobs/{job_id}/events?token={of_all}",
    ):
        assert (await listen(None, path)).status == 401
    assert (await ask(None, "GET", f"/api/jobs/{job_id}/status?token={of_job}")).status_code == 401
    bearer = {"authorization": f"Bearer {of_job}"}
    response = await ask(None, "GET", f"/api/jobs/{job_id}/status", headers=bearer)
    assert response.status_code == 401


@pytest.mark.parametrize("token", ["", "x", "alice", "gl_aaaaaaaaaaaa_" + "a" * 49, "A" * 5000])
async def test_what_is_no_token_opens_nothing(
    ask: Asker, listen: Listener, audit: AuditKept, token: str
) -> None:
    """Above all no key: it would be in logs and histories."""
    job_id = await new_job(ask)
    for path in (f"/api/jobs/{job_id}/events", "/api/events"):
        # Not even beside good credentials: one of the two is a mistake.
        for who in (None, "alice"):
            assert (await listen(who, f"{path}?token={token}")).status == 401
    assert audit.outcomes()[-1] == ("", "followJobs", "unauthenticated")


async def test_a_token_is_given_to_those_only_who_may_read(ask: Asker) -> None:
    job_id = await new_job(ask)
    for who, status in (("eve", 404), ("bob", 403), (None, 401)):
        assert (await ask(who, "POST", f"/api/jobs/{job_id}/events/token")).status_code == status
    assert (await ask("submitter", "POST", "/api/events/token")).status_code == 403


async def test_a_token_that_expires_ends_its_stream(
    ask: Asker, listen: Listener, clock: FakeClock
) -> None:
    job_id = await new_job(ask)
    tokens = [await token_for(ask, job_id), await token_for(ask)]
    streams = [await listen(None, token["url"]) for token in tokens]
    for stream in streams:
        await stream.hears()
    clock.advance(MINUTE)
    for stream in streams:
        assert await stream.ends() == []
    for token in tokens:
        assert (await listen(None, token["url"])).status == 401


async def test_the_cookie_that_comes_with_it_opens_the_stream_too(
    ask: Asker, listen: Listener, jobs: Gantline, clock: FakeClock
) -> None:
    job_id = await new_job(ask)
    token = await token_for(ask, job_id)
    assert token["cookie"] == (
        f"gantline-stream={token['token']}; Path=/api/jobs/{job_id}/events; Max-Age=60; "
        "HttpOnly; SameSite=Strict"
    )
    cookie = {"cookie": f"other=1; gantline-stream={token['token']}"}
    path = f"/api/jobs/{job_id}/events"
    stream = await listen(None, path, headers=cookie)
    first = await stream.hears()
    assert (await listen(None, "/api/events", headers=cookie)).status == 401
    clock.advance(MINUTE)
    assert await stream.ends() == []
    # The page has renewed its cookie meanwhile; EventSource comes back by itself.
    renewed = {"cookie": f"gantline-stream={(await token_for(ask, job_id))['token']}"}
    await run_all(jobs)
    back = await listen(None, path, headers=renewed, last=first.last_id)
    assert names(await back.ends()) == ["completed"]


async def test_a_stale_cookie_does_not_spoil_good_credentials(
    ask: Asker, listen: Listener, clock: FakeClock
) -> None:
    job_id = await new_job(ask)
    cookie = {"cookie": f"gantline-stream={(await token_for(ask, job_id))['token']}"}
    clock.advance(MINUTE)
    path = f"/api/jobs/{job_id}/events"
    assert (await listen(None, path, headers=cookie)).status == 401
    assert (await listen("alice", path, headers=cookie)).status == 200


async def test_without_a_pepper_there_are_no_tokens(ask: Asker, jobs: Gantline) -> None:
    """One of the process's own would be good for that process only."""
    job_id = await new_job(ask)
    token = await token_for(ask, job_id)
    api = jobs.api(authenticator=ByName())
    async with asker_of(api) as without, listening_to(api) as listen:
        for path in ("/api/events/token", f"/api/jobs/{job_id}/events/token"):
            response = await without("alice", "POST", path)
            assert response.status_code == 404
            assert response.json()["errorCode"] == "STREAM_TOKENS_OFF"
        assert (await listen(None, token["url"])).status == 401


async def test_the_pepper_of_the_environment_signs_them_for_all_processes(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEPPER_VARIABLE, f"1:{new_pepper()}")
    one, other = jobs.api(authenticator=ByName()), jobs.api(authenticator=ByName())
    async with asker_of(one) as ask, listening_to(other) as listen:
        job_id = await new_job(ask)
        token = await token_for(ask, job_id)
        assert (await listen(None, token["url"])).status == 200


# -- with real keys -------------------------------------------------------------------------------


@pytest.fixture
def keys(jobs: Gantline, clock: FakeClock) -> ApiKeys:
    return ApiKeys(jobs.store, PEPPERS, clock=clock)


@pytest.fixture
def by_key(jobs: Gantline, keys: ApiKeys, clock: FakeClock) -> Api:
    return jobs.api(
        authenticator=AnyOf(ApiKeyAuthenticator(keys), ByName()),
        settings=HASTY,
        stream_tokens=StreamTokens(PEPPERS, clock=clock),
    )


async def test_a_key_that_is_revoked_ends_its_streams_and_those_of_its_tokens(
    by_key: Api, keys: ApiKeys, jobs: Gantline
) -> None:
    grant = KeyGrant(name="page", tenant_id="acme", roles=frozenset({Role.VIEWER}))
    issued = await keys.create(grant)
    async with asker_of(by_key) as ask, listening_to(by_key) as listen:
        job_id = await new_job(ask, DOCUMENT, "alice")
        token = await token_for(ask, job_id, issued.text)
        streams = [
            await listen(issued.text, f"/api/jobs/{job_id}/events"),
            await listen(issued.text, "/api/events"),
            await listen(None, token["url"]),
        ]
        for stream in streams:
            assert (await stream.hears()).shown == ("state", "Queued")
        (run,) = await claim(jobs)
        await keys.revoke(issued.key.id, tenant_id="acme")
        for stream in streams:
            await stream.ends()
        await settle(jobs, run, success())
        assert all("Completed" not in stream.body.decode() for stream in streams)
        assert (await listen(None, token["url"])).status == 401
        assert issued.text not in token["url"]


async def test_a_key_that_is_rotated_lets_its_tokens_be(
    by_key: Api, keys: ApiKeys, jobs: Gantline
) -> None:
    issued = await keys.create(
        KeyGrant(name="page", tenant_id="acme", roles=frozenset({Role.VIEWER}))
    )
    async with asker_of(by_key) as ask, listening_to(by_key) as listen:
        job_id = await new_job(ask, DOCUMENT, "alice")
        token = await token_for(ask, job_id, issued.text)
        stream = await listen(None, token["url"])
        await keys.rotate(issued.key.id, tenant_id="acme", overlap=timedelta(0))
        await run_all(jobs)
        assert names(await stream.ends())[-1] == "completed"
