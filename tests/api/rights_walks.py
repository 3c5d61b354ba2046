"""How each operation and page is asked for; its right is as docs/openapi.json tells it."""

import json
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from gantline.auth.action import Action
from tests.api.rights_table import JOB_TYPE

DOCUMENTED: Final = {
    one["operationId"]: (method.upper(), path, one)
    for path, methods in json.loads(
        (Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8")
    )["paths"].items()
    for method, one in methods.items()
}
MARK: Final = "of-acme"
"""In the subject of acme's job, the address of its webhook and the owner of its schedule."""
PAYLOAD_MARK: Final = "payload-of-acme"
URL: Final = "https://hooks.example.com"

About = Literal["job", "jobs", "within", "tenant", "installation", "open"]
"""What a request names: a job by its id; what the caller may see of a tenant's jobs; a thing of the
tenant; the tenant itself; nothing that belongs to a tenant; nothing that needs a right."""


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation is asked for, and what it is about."""

    about: About
    body: Any = None
    also: frozenset[Action] = frozenset()
    """Rights that it needs beside its own."""
    names_tenant: Literal["query", "body", "items", ""] = ""
    names_type: bool = False
    """What it lists is of a type that the request names."""
    shows: str = ""
    """What of acme's is in the answer, for who may see it."""
    method: str = ""
    path: str = ""
    right: Action | None = None
    """The last three where it is not in the OpenAPI document."""


SUBMIT: Final = frozenset({Action.SUBMIT})
JOB: Final = {"jobType": JOB_TYPE, "payload": {"documentId": "{new}"}}
DAILY: Final = {**JOB, "everySeconds": 60}
WEBHOOK: Final = {"url": URL}


def job(**more: Any) -> Walk:
    return Walk(about="job", **more)


def within(**more: Any) -> Walk:
    return Walk(about="within", names_tenant="query", **more)


def tenant(names_tenant: Any = "query", **more: Any) -> Walk:
    return Walk(about="tenant", names_tenant=names_tenant, **more)


def page(path: str) -> Walk:
    return Walk(about="open", method="GET", path=path)


INSTALLATION: Final = Walk(about="installation")
OPEN: Final = Walk(about="open")
TYPE_OF_JOB: Final = f'"jobType":"{JOB_TYPE}"'
WALKS: Final = {
    "submitJob": tenant("body", body=JOB),
    "submitBatch": tenant("items", body={"jobs": [JOB]}),
    "getStatus": job(shows=MARK),
    "getJob": job(shows=MARK),
    "listJobs": Walk(about="jobs", names_tenant="query", shows=MARK),
    "getHistory": job(),
    "getAttempts": job(),
    "whyJob": job(shows='"reasons":[{'),
    "cancelJob": job(shows=MARK),
    "redriveJob": job(shows=MARK),
    "redriveEdited": job(
        body={"subjectId": MARK, "idempotencyKey": "{new}"}, also=SUBMIT, shows=MARK
    ),
    "deleteJob": job(),
    "summarizeDeadLetters": tenant(shows=TYPE_OF_JOB),
    "redriveDeadLetters": Walk(
        about="jobs", names_tenant="body", body={"jobIds": ["{dead}"]}, shows='"matching":1'
    ),
    "listDeadLetters": Walk(about="jobs", names_tenant="query", shows=MARK),
    "getDeadLetter": job(shows=MARK),
    "getStatistics": tenant(shows=TYPE_OF_JOB),
    "getScale": tenant(),
    "listQueues": tenant(shows='"queue":"documents"'),
    "pauseQueue": INSTALLATION,
    "resumeQueue": INSTALLATION,
    "capQueue": Walk(about="installation", body={"maxDepth": 1000}),
    "listJobTypes": tenant("", shows=f'"jobType":"{JOB_TYPE}"'),
    "disableJobType": INSTALLATION,
    "enableJobType": INSTALLATION,
    "pauseJobType": INSTALLATION,
    "resumeJobType": INSTALLATION,
    "getJobType": tenant(""),
    "listLimits": tenant(""),
    "getLimits": tenant(""),
    "listGates": INSTALLATION,
    "listGroups": tenant(names_type=True, shows='"group":'),
    "setLimits": Walk(about="installation", body={"running": 1000}),
    "clearLimits": INSTALLATION,
    "listWebhooks": tenant(shows=MARK),
    "createWebhook": tenant(body=WEBHOOK),
    "getWebhook": within(shows=MARK),
    "updateWebhook": within(body=WEBHOOK),
    "deleteWebhook": within(),
    "rotateWebhook": within(shows=MARK),
    "enableWebhook": within(shows=MARK),
    "disableWebhook": within(shows=MARK),
    "testWebhook": within(),
    "replayDeliveries": within(body={}),
    "listDeliveries": tenant(shows='"deliveryId"'),
    "getDelivery": within(),
    "replayDelivery": within(),
    "listSchedules": tenant(shows=MARK),
    "createSchedule": tenant("body", body={**DAILY, "name": "{new}"}, also=SUBMIT),
    "getSchedule": within(shows=MARK),
    "replaceSchedule": within(body=DAILY, also=SUBMIT),
    "deleteSchedule": within(),
    "pauseSchedule": within(shows=MARK),
    "resumeSchedule": within(shows=MARK),
    "runSchedule": within(also=SUBMIT, shows=MARK),
    "nextRuns": within(),
    "listWorkers": INSTALLATION,
    "listAuditEvents": tenant(),
    "followJob": job(),
    "followJobs": Walk(about="jobs", names_tenant="query"),
    "createJobStreamToken": job(),
    "createStreamToken": Walk(about="jobs"),
    "listProblems": OPEN,
    "getProblem": OPEN,
    "getOpenApi": OPEN,
    "readDocumentation": OPEN,
    "/healthz": page("/healthz"),
    "/readyz": page("/readyz"),
    "/metrics": page("/metrics"),
    "/": page("/"),
    "async endpoint": Walk(
        about="tenant", method="POST", path="/own", right=Action.SUBMIT, body=JOB["payload"]
    ),
}


def group_of(name: str) -> str:
    return str(DOCUMENTED[name][2]["tags"][0]) if name in DOCUMENTED else "pages"


def right_of(name: str) -> Action | None:
    """As it is documented."""
    if name not in DOCUMENTED:
        return WALKS[name].right
    scopes = [right for scheme in DOCUMENTED[name][2]["security"] for right in scheme.values()]
    return Action(scopes[0][0]) if scopes else None
