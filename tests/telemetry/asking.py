"""Asking pages of an ASGI application, and reading metrics as Prometheus would."""

from typing import Any, NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gantline.telemetry.health_server import AsgiApp, AsgiMessage


class Answer(NamedTuple):
    """What an application answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def failed(self) -> set[str]:
        """The checks that are not well."""
        return {name for name, check in self.json["checks"].items() if not check["ok"]}


async def ask(app: AsgiApp, path: str, *, method: str = "GET", root_path: str = "") -> Answer:
    sent: list[AsgiMessage] = []

    async def receive() -> AsgiMessage:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: AsgiMessage) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": root_path + path,
        "root_path": root_path,
        "query_string": b"",
        "headers": [],
    }
    await app(scope, receive, send)
    start, body = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, body["body"])


class Samples:
    """The samples of a page by name and labels."""

    def __init__(self, page: bytes) -> None:
        self.families = {one.name: one for one in text_string_to_metric_families(page.decode())}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def get(self, name: str, **labels: str) -> float | None:
        return self._values.get((name, frozenset(labels.items())))

    def labels(self, name: str) -> list[dict[str, str]]:
        """The labels of all samples of a name."""
        return [dict(labels) for found, labels in self._values if found == name]


async def samples(app: AsgiApp) -> Samples:
    answer = await ask(app, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Samples(answer.body)
