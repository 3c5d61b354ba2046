"""Errors of ours that routes of one's own raise, answered as the API answers them."""

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount, Route

from gantline import Gantline, GantlineError, SubmitConflict
from gantline.api.application import Api
from gantline.contract.errors import (
    Forbidden,
    InvalidPayload,
    JobTypeDisabled,
    NotAuthenticated,
    NotThere,
    Problem,
    QueueFull,
    StoreUnavailable,
)
from gantline.integrations.fastapi import Accepted
from tests.api.application import ByName
from tests.api.conftest import asker_of


@pytest.fixture
def api(jobs: Gantline) -> Api:
    return jobs.api(authenticator=ByName())


def in_fastapi(api: Api, route: Any) -> Any:
    app = FastAPI()
    app.add_api_route("/own", route, methods=["POST"], response_class=Accepted)
    app.add_exception_handler(GantlineError, api.problem)
    app.mount("/", api)
    return app


def in_starlette(api: Api, route: Any) -> Any:
    async def own(request: Request) -> Any:
        return await route()

    return Starlette(
        routes=[Route("/own", own, methods=["POST"]), Mount("/", api)],
        exception_handlers={GantlineError: api.problem},
    )


BOTH = pytest.mark.parametrize("within", [in_fastapi, in_starlette])


@BOTH
async def test_a_type_that_is_switched_off_is_503(jobs: Gantline, api: Api, within: Any) -> None:
    sweep = jobs.find_type("sweep")
    assert sweep is not None

    async def own() -> Accepted:
        return Accepted.of(await sweep.submit(None, tenant="acme", owner="user:alice"))

    async with asker_of(within(api, own)) as ask:
        accepted = await ask._client.post("/own")
        assert (await ask("alice", "GET", accepted.headers["location"])).status_code == 200
        await jobs.switches.disable_type("sweep")
        refused = await ask("alice", "POST", "/own")
        assert refused.json()["errorCode"] == "JOB_TYPE_DISABLED"
        assert (await ask(None, "GET", refused.json()["type"])).status_code == 200


@BOTH
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotAuthenticated("Nobody is logged in."), 401),
        (Forbidden("This is for others."), 403),
        (NotThere("There is no such document."), 404),
        (SubmitConflict.of_key(), 409),
        (QueueFull("Too many wait."), 503),
        (JobTypeDisabled("It is off."), 503),
        (StoreUnavailable("db.internal:5432 is away"), 503),
        (GantlineError("something inside"), 500),
    ],
)
async def test_every_error_has_the_status_that_it_has_in_the_api(
    api: Api, within: Any, error: GantlineError, status: int
) -> None:
    async def own() -> Accepted:
        raise error

    async with asker_of(within(api, own)) as ask:
        headers = {"x-correlation-id": "corr-1"}
        response = await ask("alice", "POST", "/own", headers=headers)
        assert response.status_code == status
        assert (response.json()["correlationId"], response.json()["instance"]) == ("corr-1", "/own")
        assert "internal:" not in response.text
        assert "inside" not in response.text
        if status == 401:
            assert response.headers["www-authenticate"] == ByName.challenge


@BOTH
async def test_what_is_wrong_is_pointed_at_in_the_body_itself(api: Api, within: Any) -> None:
    async def own() -> Accepted:
        raise InvalidPayload("The body is not valid.", [Problem("#/title", "is too long")])

    async with asker_of(within(api, own)) as ask:
        response = await ask("alice", "POST", "/own")
        assert response.status_code == 422
        assert response.json()["errors"] == [{"pointer": "#/title", "detail": "is too long"}]


async def test_an_error_that_is_not_ours_is_left_to_others(api: Api) -> None:
    with pytest.raises(ValueError, match="theirs"):
        await api.problem(Request({"type": "http"}), ValueError("theirs"))
