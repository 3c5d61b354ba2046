"""The right in the table of operations: it is the one that is asked for, and documented."""

import re
from typing import Any

from gantline import Gantline
from gantline.api.application import Api
from gantline.api.operation import Operation
from gantline.auth.action import Action
from gantline.auth.authorizer import DefaultAuthorizer, Target
from gantline.auth.principal import Principal
from gantline.contract.query import NOTHING_VISIBLE, Visibility
from tests.api.application import ByName
from tests.api.conftest import asker_of
from tests.api.test_submit import MAIL

BODIES: dict[str, Any] = {
    "submitJob": MAIL,
    "submitBatch": {"jobs": [MAIL]},
    "redriveEdited": {},
    "redriveDeadLetters": {"jobTypes": ["mail"]},
    "capQueue": {"maxDepth": 1},
    "setLimits": {"running": 1},
    "createWebhook": {"url": "https://hooks.example/"},
    "updateWebhook": {"url": "https://hooks.example/"},
    "replayDeliveries": {},
    "createSchedule": {**MAIL, "name": "daily", "everySeconds": 60},
    "replaceSchedule": {**MAIL, "everySeconds": 60},
}


class Refusing(DefaultAuthorizer):
    """Allows nothing, and remembers what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Action] = []

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        self.asked.append(action)
        return False

    def scope(self, principal: Principal, action: Action) -> Visibility:
        self.asked.append(action)
        return NOTHING_VISIBLE


async def test_every_operation_asks_for_its_right_and_answers_nothing_without_it(
    jobs: Gantline,
) -> None:
    async with asker_of(jobs.api(authenticator=ByName())) as ask:
        job_id = (await ask("alice", "POST", "/api/jobs", MAIL)).json()["jobId"]
    authorizer = Refusing()
    api = jobs.api(authenticator=ByName(), authorizer=authorizer)
    async with asker_of(api) as ask:
        for operation in api.operations:
            if operation.right is None:
                continue
            authorizer.asked.clear()
            body = BODIES.get(operation.name)
            response = await ask("admin", operation.method, path_of(operation, job_id), body)
            # A batch answers row by row.
            is_refused = response.status_code in (403, 404) or response.json().get("accepted") == 0
            assert is_refused, (operation.name, response.text)
            assert authorizer.asked[:1] == [operation.right], operation.name


def path_of(operation: Operation, job_id: str) -> str:
    values = {"job_id": job_id, "job_type": "mail", "queue": "default", "schedule": "daily"}
    return re.sub(
        r"\{(\w+)(?::path)?\}", lambda match: values.get(match[1], job_id), operation.path
    )


def test_the_document_names_the_right_of_every_operation(api: Api) -> None:
    documented = {
        one["operationId"]: one["security"]
        for path in api.openapi["paths"].values()
        for one in path.values()
    }
    for operation in api.operations:
        rights = [right for scheme in documented[operation.name] for right in scheme.values()]
        if operation.right is None:
            assert rights == []
        else:
            assert rights
            assert all(one == [operation.right] for one in rights)
