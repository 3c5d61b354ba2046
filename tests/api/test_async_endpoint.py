"""Async endpoints: a route of one's own application enqueues a job and answers 202."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import httpx2
import msgspec
import pydantic
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from gantline import Gantline, InvalidInput
from gantline.api import ApiSettings, Responses
from gantline.api.application import Api
from gantline.api.documents import AcceptedDocument, ProblemDocument
from gantline.auth.action import Action
from gantline.auth.authorizer import Target
from gantline.auth.principal import Principal
from gantline.contract.errors import AuthMisconfigured
from gantline.integrations.fastapi import Accepted, enqueue
from tests.api.application import PRINCIPALS, ByName
from tests.api.conftest import asker_of
from tests.api.playing import stored


class AnalysisRequest(msgspec.Struct, rename="camel"):
    """The request of the seed's own example."""

    document_id: UUID
    type: str
    depth: int = 1
    tags: list[str] = msgspec.field(default_factory=list)
    region: str | None = None


@pytest.fixture
def analyze(jobs: Gantline) -> Any:
    @jobs.job(
        "ai-analyze", subject="{document_id}", idempotency_key="analysis-{document_id}-{type}"
    )
    async def analyze(request: AnalysisRequest) -> None: ...

    return analyze


def serving(api: Api, *routes: Route) -> Any:
    return asker_of(Starlette(routes=[*routes, Mount("/", api)]))


async def payloads(jobs: Gantline) -> list[Any]:
    return [job.job.data() for job in await stored(jobs)]


DOCUMENT_ID = "00000000-0000-0000-0000-000000000002"
BODY = {"documentId": DOCUMENT_ID, "type": "summary"}


async def test_the_endpoint_of_the_seed(api: Api, jobs: Gantline, analyze: Any) -> None:
    """POST /api/analysis/enqueue, as 000 has it."""
    async with serving(api, api.enqueue("/api/analysis/enqueue", analyze)) as ask:
        response = await ask(
            "alice", "POST", "/api/analysis/enqueue", BODY, headers={"x-correlation-id": "corr-1"}
        )
        body = response.json()
        assert response.status_code == 202
        assert list(body) == ["jobId", "subjectId", "statusUrl", "status", "duplicate"]
        assert body["statusUrl"] == f"/api/jobs/{body['jobId']}/status"
        assert response.headers["location"] == body["statusUrl"]
        assert body["subjectId"] == DOCUMENT_ID
        (job,) = await stored(jobs)
        assert job.job.job_type == "ai-analyze"
        assert job.job.correlation_id == "corr-1"
        assert job.job.idempotency_key == f"analysis-{DOCUMENT_ID}-summary"
        assert (await ask("alice", "GET", body["statusUrl"])).json()["status"] == "Queued"
        again = (await ask("alice", "POST", "/api/analysis/enqueue", BODY)).json()
        assert again == {**body, "duplicate": True}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_any_method_with_or_without_a_body(
    api: Api, jobs: Gantline, analyze: Any, method: str
) -> None:
    path = "/documents/{document_id}/analysis"
    route = api.enqueue(path, analyze, methods=[method])
    async with serving(api, route) as ask:
        url = f"/documents/{DOCUMENT_ID}/analysis?type=summary&depth=3&tags=a&tags=b"
        assert (await ask("alice", method, url)).status_code == 202
        with_body = {"type": "full", "depth": 2}
        url = f"/documents/{DOCUMENT_ID}/analysis"
        assert (await ask("alice", method, url, with_body)).status_code == 202
    newest, oldest = await payloads(jobs)
    assert oldest == {
        "documentId": DOCUMENT_ID,
        "type": "summary",
        "depth": 3,
        "tags": ["a", "b"],
        "region": None,
    }
    assert (newest["documentId"], newest["type"], newest["depth"]) == (DOCUMENT_ID, "full", 2)


@pytest.mark.parametrize(
    ("url", "body", "status", "pointer"),
    [
        ("/d/nope?type=a", None, 422, "#/documentId"),
        (f"/d/{DOCUMENT_ID}", None, 422, "#/type"),
        (f"/d/{DOCUMENT_ID}?type=a&depth=x", None, 422, "#/depth"),
        (f"/d/{DOCUMENT_ID}?type=a", {"type": "b"}, 422, "#/type"),
        (f"/d/{DOCUMENT_ID}", {"type": 5}, 422, "#/type"),
        (f"/d/{DOCUMENT_ID}", {"type": "a", "documentId": str(UUID(int=9))}, 422, "#/documentId"),
        (f"/d/{DOCUMENT_ID}", [], 422, "#"),
    ],
)
async def test_what_is_not_of_the_payloads_type_is_pointed_at(
    api: Api, jobs: Gantline, analyze: Any, url: str, body: Any, status: int, pointer: str
) -> None:
    async with serving(api, api.enqueue("/d/{document_id}", analyze)) as ask:
        response = await ask("alice", "POST", url, body)
        assert response.status_code == status
        assert response.json()["errors"][0]["pointer"] == pointer
    assert await stored(jobs) == []


async def test_bad_requests_are_problems_and_store_nothing(
    api: Api, jobs: Gantline, analyze: Any
) -> None:
    async with serving(api, api.enqueue("/analyze", analyze)) as ask:
        for content, headers, status in (
            (b"{", {}, 400),
            (b"x" * 2_000_000, {}, 413),
            (b"{}", {"content-type": "text/plain"}, 415),
            (msgspec.json.encode(BODY), {"x-async-request-id": "nope"}, 400),
            (msgspec.json.encode(BODY), {"idempotency-key": ""}, 400),
            (msgspec.json.encode(BODY), {"x-correlation-id": "a b"}, 400),
        ):
            response = await ask("alice", "POST", "/analyze", content=content, headers=headers)
            assert response.status_code == status
        assert (await ask("alice", "POST", "/analyze?bogus=1", BODY)).status_code == 400
        assert (await ask(None, "POST", "/analyze", BODY)).status_code == 401
        assert (await ask("mailer", "POST", "/analyze", BODY)).status_code == 403
    assert await stored(jobs) == []


async def test_headers_are_captured_only_where_they_are_named(
    api: Api, jobs: Gantline, analyze: Any
) -> None:
    route = api.enqueue("/analyze", analyze, headers={"X-Region": "region"})
    async with serving(api, route) as ask:
        headers = {"x-region": "eu", "x-depth": "9", "cookie": "session=secret"}
        assert (await ask("alice", "POST", "/analyze", BODY, headers=headers)).status_code == 202
    (job,) = await stored(jobs)
    assert job.job.data()["region"] == "eu"
    assert job.job.data()["depth"] == 1
    assert b"secret" not in job.job.to_json()
    assert b"Bearer" not in job.job.to_json()


@pytest.mark.parametrize("header", ["Authorization", "cookie", "Proxy-Authorization", "X-Api-Key"])
async def test_credentials_are_never_captured(api: Api, analyze: Any, header: str) -> None:
    with pytest.raises(InvalidInput, match="may not be captured"):
        api.endpoint(analyze, headers={header: "region"})
    with pytest.raises(InvalidInput, match="has not"):
        api.endpoint(analyze, headers={"X-Region": "nothing"})


async def test_the_client_may_choose_the_job_id(api: Api, jobs: Gantline, analyze: Any) -> None:
    job_id = str(uuid4())
    headers = {"x-async-request-id": job_id}
    async with serving(api, api.enqueue("/analyze", analyze)) as ask:
        first = (await ask("alice", "POST", "/analyze", BODY, headers=headers)).json()
        found = await ask("alice", "GET", f"/api/jobs/{job_id}/status")
        assert found.json()["jobId"] == first["jobId"] != job_id
        again = (await ask("alice", "POST", "/analyze", BODY, headers=headers)).json()
        assert again == {**first, "duplicate": True}
        other = {**BODY, "type": "full"}
        response = await ask("alice", "POST", "/analyze", other, headers=headers)
        assert (response.status_code, response.json()["errorCode"]) == (409, "JOB_ID_CONFLICT")
    assert len(await stored(jobs)) == 1


async def test_an_idempotency_key_holds_for_one_route(
    api: Api, jobs: Gantline, analyze: Any
) -> None:
    headers = {"idempotency-key": "abc"}
    routes = [api.enqueue("/a", analyze), api.enqueue("/b", analyze)]
    async with serving(api, *routes) as ask:
        first = (await ask("alice", "POST", "/a", BODY, headers=headers)).json()
        assert (await ask("alice", "POST", "/a", BODY, headers=headers)).json()["duplicate"] is True
        elsewhere = await ask("alice", "POST", "/b", BODY, headers=headers)
        assert elsewhere.json()["errorCode"] == "IDEMPOTENCY_KEY_REUSED"
        assert first["duplicate"] is False


async def test_somebody_else_may_answer_first(api: Api, jobs: Gantline, analyze: Any) -> None:
    async def before(request: Request, payload: AnalysisRequest) -> Response | None:
        assert request.state.principal == PRINCIPALS["alice"]
        assert await request.json() == {**BODY, "type": payload.type}
        if payload.type == "known":
            return JSONResponse({"cached": True}, headers={"x-cache": "hit"})
        return None

    def plainly(request: Request, payload: AnalysisRequest) -> Response | None:
        return Response(status_code=204, headers={"cache-control": "no-store"})

    routes = [
        api.enqueue("/analyze", analyze, before=before),
        api.enqueue("/never", analyze, before=plainly),
    ]
    async with serving(api, *routes) as ask:
        body = {**BODY, "type": "known"}
        response = await ask._client.post(
            "/analyze", json=body, headers={"authorization": "Bearer alice"}
        )
        assert (response.status_code, response.json()) == (200, {"cached": True})
        assert response.headers["x-cache"] == "hit"
        assert (await ask("alice", "POST", "/never", BODY)).status_code == 204
        assert await stored(jobs) == []
        assert (await ask("alice", "POST", "/analyze", BODY)).status_code == 202


async def test_a_response_may_be_one_for_all_requests_or_a_file(
    api: Api, analyze: Any, tmp_path: Path
) -> None:
    kept = Response("kept", headers={"cache-control": "no-store"})
    (tmp_path / "page").write_text("a file")
    file = FileResponse(tmp_path / "page", headers={"cache-control": "no-store"})
    routes = [
        api.enqueue("/kept", analyze, before=lambda request, payload: kept),
        api.enqueue("/file", analyze, before=lambda request, payload: file),
    ]
    async with serving(api, *routes) as ask:
        for path, text in (("/kept", "kept"), ("/file", "a file")) * 2:
            response = await ask("alice", "POST", path, BODY)
            assert response.text == text
            assert len(response.headers.get_list("x-correlation-id")) == 1
            assert response.headers["content-length"] == str(len(text))


async def test_the_answers_can_be_shaped(api: Api, jobs: Gantline, analyze: Any) -> None:
    class Ours(Responses):
        def submitted(self, accepted: AcceptedDocument, headers: Any) -> Response:
            body = msgspec.json.encode({"ticket": accepted.job_id})
            kept = {**headers, "content-type": "application/json", "cache-control": "no"}
            return Response(body, 202, kept)

        def error(self, problem: ProblemDocument, headers: Any) -> Response:
            return super().error(msgspec.structs.replace(problem, title="Oh no"), headers)

    routes = [
        api.enqueue("/ours", analyze, responses=Ours()),
        api.enqueue("/plain", analyze),
    ]
    async with serving(api, *routes) as ask:
        response = await ask("alice", "POST", "/ours", BODY)
        assert response.headers["location"] == f"/api/jobs/{response.json()['ticket']}/status"
        assert (await ask("alice", "POST", "/ours", {})).json()["title"] == "Oh no"
        assert "jobId" in (await ask("alice", "POST", "/plain", BODY)).json()
        assert (await ask("alice", "POST", "/plain", {})).json()["title"] != "Oh no"


async def test_a_whole_api_can_answer_in_ones_own_way(jobs: Gantline) -> None:
    class Wrapped(Responses):
        def status(self, status: Any, headers: Any) -> Response:
            body = msgspec.json.encode({"data": status})
            usual = super().status(status, headers).headers
            kept = {name: usual[name] for name in usual if name != "content-length"}
            return Response(body, 200, kept)

    async with asker_of(jobs.api(authenticator=ByName(), responses=Wrapped())) as ask:
        body = {"jobType": "sweep"}
        url = (await ask("alice", "POST", "/api/jobs", body)).json()["statusUrl"]
        assert (await ask("alice", "GET", url)).json()["data"]["status"] == "Queued"


async def test_payloads_of_every_kind_can_be_sent(api: Api, jobs: Gantline) -> None:
    class Model(pydantic.BaseModel):
        name: str = pydantic.Field(alias="theName")
        size: int = 1

    @dataclass
    class Plain:
        name: str
        size: int = 1

    @jobs.job("model")
    async def model(payload: Model) -> None: ...

    @jobs.job("plain")
    async def plain(payload: Plain) -> None: ...

    @jobs.job("open")
    async def open_(payload: dict[str, Any]) -> None: ...

    @jobs.job("text")
    async def text(payload: str) -> None: ...

    @jobs.job("nothing")
    async def nothing() -> None: ...

    kinds = (model, plain, open_, text, nothing)
    routes = [api.enqueue("/" + kind.name, kind) for kind in kinds]
    async with serving(api, *routes) as ask:
        for url, body, payload in (
            ("/model?size=3", {"theName": "a"}, {"theName": "a", "size": 3}),
            ("/model?theName=b", None, {"theName": "b", "size": 1}),
            ("/plain?name=a&size=3", None, {"name": "a", "size": 3}),
            ("/open?a=1&b=2&b=3", {"c": 4}, {"c": 4, "a": "1", "b": ["2", "3"]}),
            ("/text", "hello", "hello"),
            ("/nothing", None, None),
        ):
            response = await ask("alice", "POST", url, body)
            assert response.status_code == 202, response.text
            (job,) = await jobs.store.get([UUID(response.json()["jobId"])], tenant_id="acme")
            assert job is not None
            assert job.job.data() == payload
        wrong = await ask("alice", "POST", "/model?size=x", {"theName": 1})
        pointers = {error["pointer"] for error in wrong.json()["errors"]}
        assert pointers == {"#/theName", "#/size"}
        assert (await ask("alice", "POST", "/text?a=1", "hello")).status_code == 400
        assert (await ask("alice", "POST", "/nothing", {"a": 1})).status_code == 422


async def test_the_status_is_found_where_the_api_is_mounted(jobs: Gantline, analyze: Any) -> None:
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(mounted_at="/gantline"))
    inner = Starlette(routes=[api.enqueue("/analyze", analyze)])
    app = Starlette(routes=[Mount("/gantline", api), Mount("/v1", inner)])
    async with asker_of(app) as ask:
        body = (await ask("alice", "POST", "/v1/analyze", BODY)).json()
        assert (await ask("alice", "GET", body["statusUrl"])).status_code == 200


# -- FastAPI --------------------------------------------------------------------------------------


async def current_user(authorization: Annotated[str, Header()] = "") -> Principal:
    name = authorization.removeprefix("Bearer ")
    if name not in PRINCIPALS:
        raise HTTPException(401, "who?")
    return PRINCIPALS[name]


def may_see(principal: Principal, action: Action, target: Target) -> bool:
    return target.owner == principal.id


async def test_fastapi_by_its_own_dependencies(jobs: Gantline, analyze: Any) -> None:
    app = FastAPI()
    app.include_router(jobs.router(principal=Depends(current_user), authorize=may_see))
    enqueue(app, "/d/{document_id}/analysis", analyze, principal=Depends(current_user))
    async with asker_of(app) as ask:
        response = await ask("alice", "POST", f"/d/{DOCUMENT_ID}/analysis", {"type": "full"})
        assert response.status_code == 202
        url = response.json()["statusUrl"]
        assert (await ask("alice", "GET", url)).status_code == 200
        assert (await ask("operator", "GET", url)).status_code == 403
        assert (await ask("eve", "GET", url)).status_code == 404
        listed = (await ask("alice", "GET", "/api/jobs?limit=10")).json()["items"]
        assert [item["jobId"] for item in listed] == [response.json()["jobId"]]
        assert (await ask("bob", "GET", "/api/jobs")).json()["items"] == []
        wrong = await ask("alice", "POST", f"/d/{DOCUMENT_ID}/analysis", {"type": 5})
        assert wrong.json()["errors"][0]["pointer"] == "#/type"
        nobody = await ask._client.get(url)
        assert nobody.status_code == 401
        document = (await ask._client.get("/openapi.json")).json()
        shown = document["paths"]["/d/{document_id}/analysis"]["post"]["requestBody"]
        schema = shown["content"]["application/json"]["schema"]
        assert set(schema["properties"]) >= {"type", "depth"}
    (job,) = await stored(jobs)
    assert (job.job.created_by, job.job.tenant_id) == ("user:alice", "acme")


async def test_fastapi_tells_of_an_endpoint_what_its_callers_need(analyze: Any) -> None:
    """Where the document of the user's own application names no path value, nobody can try it."""
    app = FastAPI()
    path = "/d/{document_id}/{shelf}/analysis"
    who = Depends(current_user)
    enqueue(app, path, analyze, principal=who, headers={"X-Region": "region"})
    told = app.openapi()["paths"][path]["post"]
    assert {(one["name"], one["in"], one["required"]) for one in told["parameters"]} == {
        ("document_id", "path", True),
        ("shelf", "path", True),
        ("X-Region", "header", False),
        ("authorization", "header", False),  # the dependency's own
    }
    by_name = {one["name"]: one["schema"] for one in told["parameters"]}
    assert by_name["document_id"] == {"type": "string", "format": "uuid"}
    body = told["requestBody"]["content"]["application/json"]["schema"]
    assert "documentId" not in body["properties"]
    assert body["required"] == ["type"]
    accepted = told["responses"]["202"]["content"]["application/json"]["schema"]
    assert list(accepted["properties"])[:3] == ["jobId", "subjectId", "statusUrl"]
    assert "application/problem+json" in told["responses"]["4XX"]["content"]


async def test_fastapi_leaves_a_path_value_to_the_dependency_that_reads_it(analyze: Any) -> None:
    async def owner(document_id: str) -> Principal:
        return PRINCIPALS[document_id]

    app = FastAPI()
    enqueue(app, "/d/{document_id}", analyze, principal=Depends(owner))
    told = app.openapi()["paths"]["/d/{document_id}"]["post"]
    assert [one["name"] for one in told["parameters"]] == ["document_id"]


async def test_fastapi_by_an_authenticator(jobs: Gantline, analyze: Any) -> None:
    app = FastAPI()
    app.include_router(jobs.router(authenticator=ByName()))
    enqueue(app, "/analysis", analyze, api=jobs.api(authenticator=ByName()), methods=["PUT"])
    async with asker_of(app) as ask:
        url = (await ask("alice", "PUT", "/analysis", BODY)).json()["statusUrl"]
        assert (await ask("alice", "GET", url)).status_code == 200
        assert (await ask("alice", "HEAD", url)).status_code == 200
        assert (await ask(None, "GET", url)).status_code == 401


async def test_fastapi_under_a_prefix(jobs: Gantline, analyze: Any) -> None:
    app = FastAPI()
    app.include_router(jobs.router(authenticator=ByName()), prefix="/v1/api")
    async with asker_of(app) as ask:
        body = (await ask("alice", "POST", "/v1/api/api/jobs", {"jobType": "sweep"})).json()
        assert body["statusUrl"] == f"/v1/api/api/jobs/{body['jobId']}/status"
        status = await ask("alice", "GET", body["statusUrl"])
        assert status.status_code == 200
        problem = (await ask("alice", "GET", f"/v1/api/api/jobs/{uuid4()}/status")).json()
        assert problem["type"] == "/v1/api/api/problems/job-not-found"
        assert (await ask(None, "GET", problem["type"])).status_code == 200


async def test_fastapi_must_know_who_asks(jobs: Gantline, analyze: Any) -> None:
    with pytest.raises(AuthMisconfigured, match="authenticator"):
        jobs.router()
    with pytest.raises(AuthMisconfigured, match="Depends"):
        jobs.router(principal=current_user)
    with pytest.raises(AuthMisconfigured, match="principal=Depends"):
        enqueue(FastAPI(), "/analysis", analyze)


async def test_a_handle_becomes_the_202_of_the_contract(jobs: Gantline, analyze: Any) -> None:
    app = FastAPI()

    @app.post("/analysis", status_code=202)
    async def analysis() -> Accepted:
        handle = await analyze.submit(AnalysisRequest(UUID(DOCUMENT_ID), "summary"))
        return Accepted.of(handle)

    app.router.routes[-1].response_model = None  # type: ignore[attr-defined]
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        first, again = await client.post("/analysis"), await client.post("/analysis")
        assert first.status_code == 202
        body = first.json()
        assert list(body) == ["jobId", "subjectId", "statusUrl", "status", "duplicate"]
        assert (body["subjectId"], body["status"]) == (DOCUMENT_ID, "Queued")
        assert first.headers["location"] == f"/api/jobs/{body['jobId']}/status"
        assert first.headers["retry-after"] == "1"
        assert first.headers["content-type"] == "application/json"
        assert (again.json()["jobId"], again.json()["duplicate"]) == (body["jobId"], True)


async def test_the_worker_can_live_in_the_web_application(jobs: Gantline) -> None:
    ran = asyncio.Event()

    @jobs.job("ring")
    async def ring() -> str:
        ran.set()
        return "rang"

    api = jobs.api(authenticator=ByName())
    app = Starlette(routes=[Mount("/", api)], lifespan=jobs.lifespan(worker=True))
    async with app.router.lifespan_context(app), asker_of(app) as ask:
        response = await ask(
            "alice", "POST", "/api/jobs", {"jobType": "ring"}, headers={"prefer": "wait=30"}
        )
        assert ran.is_set()
        assert (response.status_code, response.json()["result"]) == (200, "rang")
