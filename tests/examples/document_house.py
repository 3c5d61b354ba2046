"""The document example on a real server, and people who ask it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from examples.document_processing.app import create_app
from tests.api.serving import served


class Visitor:
    """Somebody with a browser of his own; anonymous until he logs in."""

    def __init__(self, url: str) -> None:
        self.client = httpx2.Client(base_url=url, timeout=30)

    def logged_in(self, person: str) -> "Visitor":
        assert self.client.post("/login", json={"person": person}).status_code == 204
        return self

    def get(self, path: str) -> httpx2.Response:
        return self.client.get(path)

    def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return self.client.post(path, json=body, headers=headers)

    def documents(self) -> dict[str, dict[str, Any]]:
        """Those that he may read, by title."""
        return {one["title"]: one for one in self.get("/api/documents").json()}

    def enqueue(self, document_id: str, type: str = "statistics") -> httpx2.Response:  # as sent
        body = {"documentId": document_id, "type": type}
        return self.post("/api/analysis/enqueue", body)

    def end_of(self, job_id: str) -> dict[str, Any]:
        """The status of a job when its event stream has ended."""
        self.get(f"/api/jobs/{job_id}/events").raise_for_status()
        status: dict[str, Any] = self.get(f"/api/jobs/{job_id}/status").json()
        return status


class House:
    """The example, served, with its samples processed."""

    def __init__(self, url: str, database: Path) -> None:
        self.url = url
        self.database = database
        self._visitors: list[Visitor] = []

    def visitor(self) -> Visitor:
        self._visitors.append(Visitor(self.url))
        return self._visitors[-1]

    def person(self, person: str) -> Visitor:
        return self.visitor().logged_in(person)

    def sql(self, statement: str, *values: str) -> None:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute(statement, values)

    def close(self) -> None:
        for visitor in self._visitors:
            visitor.client.close()


@contextmanager
def house(folder: Path, **options: Any) -> Iterator[House]:
    database = folder / "documents.db"
    with served(create_app(database, **options)) as url:
        opened = House(url, database)
        for who in (opened.visitor().logged_in("ada"), opened.visitor().logged_in("cleo")):
            _settle(who)
        yield opened
        opened.close()


def _settle(who: Visitor) -> None:
    """Until all that was begun, and what follows from it, has ended."""
    while waiting := [
        job["jobId"] for job in who.get("/api/jobs").json()["items"] if not job["completedAt"]
    ]:
        who.end_of(waiting[0])
