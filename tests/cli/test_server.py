"""--url: the same verbs against a server print the same, and leave with the same exit codes."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import Result

from gantline.app.settings import SETTINGS
from gantline.testing.factories import register_sessions
from tests.cli.conftest import NOBODY, Place, assert_refused
from tests.servers.http_api import ApiProcess
from tests.servers.scripted import ScriptedServer, answering

# What only the holder of the store knows.
OF_THE_STORE = ("errorDetail", "workers")
DOCUMENT = '{"documentId": "d1", "rowVersion": 1}'


class Served(Place):
    """A place whose store is served: commands can be run on either."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url
        self.on_server = ("--url", url)
        self.on_store = ("--store", f"sqlite:///{self.database}")

    def both(self, *words: str) -> tuple[Result, Result]:
        return self.run(*self.on_store, *words), self.run(*self.on_server, *words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ApiProcess]:
    store = f"sqlite:///{folder}/gantline.db"
    served = ApiProcess("tests.client.served:app", store=store)
    httpx2.get(f"{served.url}/healthz", timeout=60)  # it is answered when the store is open
    yield served
    served.stop()


@pytest.fixture
def served(
    place: Place, folder: Path, server: ApiProcess, monkeypatch: pytest.MonkeyPatch
) -> Served:
    """Asked by who operates the installation; its own tenant is `default`."""
    monkeypatch.setenv("GANTLINE_API_KEY", "system")
    return Served(folder, server.url)


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return _without(json.loads(result.stdout))


def _without(data: Any) -> Any:
    if isinstance(data, list):
        return [_without(one) for one in data]
    if isinstance(data, dict):
        return {name: _without(one) for name, one in data.items() if name not in OF_THE_STORE}
    return data


def submitted(served: Served, *words: str) -> str:
    job_id: str = told(served.run(*served.on_server, "-o", "json", "job", "submit", *words))[
        "jobId"
    ]
    return job_id


def test_looking_is_the_same_on_a_server_and_on_its_store(served: Served) -> None:
    queued = submitted(served, "document-indexing", DOCUMENT, "--priority", "0")
    dead = served.dead("document-indexing", message="no way", detail="Traceback …")
    for words in (
        ["job", "list"],
        ["job", "list", "--type", "document-indexing", "--status", "failed"],
        ["job", "list", "--limit", "1"],
        ["job", "list", "--subject", "nobody's"],
        ["job", "get", queued],
        ["job", "get", dead],
        ["dead", "show", dead],
        ["dead", "list"],
        ["dead", "list", "--reason", "PermanentError"],
        ["queue", "list"],
        ["stats"],
    ):
        on_store, on_server = served.both("-o", "json", *words)
        ours, theirs = told(on_store), told(on_server)
        for row in [*ours, *theirs] if words == ["stats"] else []:
            row.pop("oldestSeconds")  # time has passed
        assert theirs == ours, words
        assert on_server.stderr == on_store.stderr
        assert served.run(*served.on_server, *words).exit_code == 0
    on_store, on_server = served.both("dead", "list")
    assert without_ages(on_server.stdout) == without_ages(on_store.stdout)


def test_why_a_job_waits_is_the_same_on_a_server_and_on_its_store(served: Served) -> None:
    document = DOCUMENT.replace("d1", "d2")  # of the other there is a job, which is due
    queued = submitted(served, "document-indexing", document, "--delay", "3600")
    dead = served.dead("document-indexing")
    for job_id, code in ((queued, "SCHEDULED"), (dead, "ENDED")):
        on_store, on_server = served.both("-o", "json", "job", "why", job_id)
        ours, theirs = told(on_store), told(on_server)
        for one in (ours, theirs):
            del one["at"]
            for reason in one["reasons"]:
                del reason["detail"]  # time has passed
            # The sessions of other tests may be another reason.
            assert code in [reason["code"] for reason in one["reasons"]]
        assert theirs == ours
    for result in served.both("job", "why", NOBODY):
        assert_refused(result, 3, "There is no job")


def test_workers_are_the_same_on_a_server_and_on_its_store(served: Served) -> None:
    served.stored(lambda store: register_sessions(store, "host-1", "host-2", "test"))
    on_store, on_server = served.both("-o", "json", "sessions")
    assert json.loads(on_server.stdout) == json.loads(on_store.stdout)
    assert [one["sessionId"] for one in json.loads(on_server.stdout)] == [
        "host-1",
        "host-2",
        "test",
    ]


def without_ages(table: str) -> str:
    """Time passes between the two."""
    return re.sub(r"\d+ s\b", "some s", table)


def test_types_are_those_that_the_server_declares(served: Served) -> None:
    rows = told(served.run(*served.on_server, "-o", "json", "type", "list"))
    assert {"document-indexing", "mail", "sweep"} <= {row["jobType"] for row in rows}
    assert rows[0].keys() == {"jobType", "queued", "running", "paused", "disabled"}


def test_a_submit_says_all_that_it_can(served: Served) -> None:
    job_id = submitted(
        served, "document-indexing", '{"documentId": "d9", "rowVersion": 9}',
        "--queue", "elsewhere", "--priority", "1", "--delay", "3600", "--key", "k9",
        "--subject", "s9", "--max-attempts", "7",
    )  # fmt: skip
    job = told(served.run(*served.on_store, "-o", "json", "job", "get", job_id))
    assert (job["queue"], job["priority"], job["maxAttempts"]) == ("elsewhere", 1, 7)
    assert (job["subjectId"], job["state"]) == ("s9", "Scheduled")
    assert job["payload"]["documentId"] == "d9"
    again = served.run(
        *served.on_server, "-o", "json", "job", "submit", "document-indexing", "-",
        "--key", "k9", stdin='{"rowVersion": 9, "documentId": "d9"}',
    )  # fmt: skip
    assert told(again) == {"jobId": job_id, "duplicate": True}
    assert again.stderr == ""


def test_a_job_is_cancelled_and_retried(served: Served) -> None:
    job_id = submitted(served, "sweep")
    words = ["-o", "json", "job", "cancel", job_id]
    done = {"jobId": job_id, "status": "Cancelled", "changed": True}
    assert told(served.run(*served.on_server, *words)) == [done]
    assert told(served.run(*served.on_server, *words)) == [{**done, "changed": False}]
    on_store, on_server = served.both(*words)
    assert on_store.stdout == on_server.stdout
    retried = told(served.run(*served.on_server, "-o", "json", "job", "redrive", job_id))
    assert retried == [{"jobId": job_id, "status": "Queued", "changed": True}]
    on_store, on_server = served.both("job", "redrive", job_id)
    assert (on_server.exit_code, on_server.stderr) == (on_store.exit_code, on_store.stderr)
    assert on_server.exit_code == 1


def test_of_several_jobs_each_is_told(served: Served) -> None:
    one, two = submitted(served, "sweep"), submitted(served, "sweep")
    result = served.run(*served.on_server, "-o", "json", "job", "cancel", one, NOBODY, two)
    assert [row["jobId"] for row in json.loads(result.stdout)] == [one, two]
    assert result.exit_code == 3
    assert NOBODY in result.stderr


def test_a_job_is_watched_to_its_end(served: Served) -> None:
    job_id = submitted(served, "sweep")
    assert served.run(*served.on_server, "job", "cancel", job_id).exit_code == 0
    on_store, on_server = served.both("-o", "json", "job", "watch", job_id)
    assert json.loads(on_server.stdout) == json.loads(on_store.stdout)
    assert (on_server.exit_code, on_server.stderr) == (1, on_store.stderr)
    waiting = submitted(served, "sweep")
    late = served.run(*served.on_server, "job", "watch", waiting, "--timeout", "0.1")
    assert late.exit_code == 124


def test_dead_letters_are_redriven_and_discarded(served: Served) -> None:
    mine = [served.dead("mail") for _ in range(3)]
    server = (*served.on_server, "-o", "json")
    count = told(served.run(*server, "dead", "redrive", "--type", "mail", "--dry-run"))
    assert count == {"matching": 3}
    refused = served.run(*server, "dead", "redrive", "--type", "mail")
    assert_refused(refused, 2, "redrive 3 dead letters", "--yes")
    assert told(served.run(*server, "dead", "redrive", mine[0])) == {"redriven": 1, "failed": 0}
    again = served.run(*server, "dead", "redrive", mine[0])
    assert_refused(again, 1, "is Queued, not a dead letter")
    rest = told(served.run(*server, "dead", "redrive", "--type", "mail", "--yes"))
    assert rest == {"redriven": 2, "failed": 0}
    gone = served.dead("other")
    thrown = told(served.run(*server, "dead", "discard", "--all", "--type", "other", "--yes"))
    assert thrown == {"discarded": 1, "failed": 0}
    assert served.run(*server, "job", "get", gone).exit_code == 3


def test_queues_and_types_are_switched(served: Served) -> None:
    server = (*served.on_server, "-o", "json")
    submitted(served, "sweep")
    paused = told(served.run(*server, "queue", "pause", "default"))
    assert paused == {"queue": "default", "paused": True, "seen": True}
    rows = told(served.run(*served.on_store, "-o", "json", "queue", "list"))
    assert [row["paused"] for row in rows if row["queue"] == "default"] == [True]
    assert told(served.run(*server, "queue", "resume", "default"))["paused"] is False
    assert told(served.run(*server, "queue", "cap", "default", "1"))["maxDepth"] == 1
    for where in (server, (*served.on_store, "-o", "json")):
        rows = told(served.run(*where, "queue", "list"))
        assert [row["maxDepth"] for row in rows if row["queue"] == "default"] == [1]
    assert_refused(served.run(*server, "job", "submit", "sweep"), 1, "may wait in the queue")
    assert told(served.run(*server, "queue", "cap", "default", "none"))["maxDepth"] is None
    unseen = served.run(*server, "queue", "pause", "nobody's")
    assert told(unseen)["seen"] is False
    assert 'There is no job of the queue "nobody\'s" that can be seen here.' in unseen.stderr
    assert told(served.run(*server, "type", "pause", "sweep"))["paused"] is True
    assert told(served.run(*server, "type", "resume", "sweep"))["paused"] is False
    assert_refused(served.run(*server, "type", "disable", "sweep"), 2, "waiting job", "--yes")
    assert told(served.run(*server, "type", "disable", "sweep", "--yes"))["disabled"] is True
    off = served.run(*server, "job", "submit", "sweep")
    assert_refused(off, 1, "sweep")
    assert told(served.run(*server, "type", "enable", "sweep"))["disabled"] is False
    assert_refused(served.run(*server, "type", "pause", "unknown"), 3, "no such job type")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["job", "get", NOBODY], 3),
        (["job", "watch", NOBODY], 3),
        (["job", "cancel", NOBODY], 3),
        (["dead", "show", NOBODY], 3),
        (["dead", "redrive", NOBODY], 3),
        (["job", "get", "x"], 2),
        (["job", "list", "--status", "odd"], 2),
        (["job", "submit", "document-indexing", "{"], 2),
        (["job", "submit", "document-indexing", '{"rowVersion": "x"}'], 2),
        (["job", "submit", "sweep", "null", "--queue", ""], 2),
        (["dead", "redrive"], 2),
    ],
)
def test_exit_codes_are_the_same(served: Served, words: list[str], code: int) -> None:
    on_store, on_server = served.both("--app", "tests.cli.served_app:jobs", *words)
    assert_refused(on_store, code)
    assert_refused(on_server, code)


def test_a_type_that_the_server_does_not_have_is_refused_as_usage(served: Served) -> None:
    assert_refused(served.run(*served.on_server, "job", "submit", "unknown"), 2, "unknown")


@pytest.mark.parametrize(
    ("key", "words", "code"),
    [
        ("", ["stats"], 4),
        ("mallory", ["stats"], 4),
        ("alice", ["stats"], 4),
        ("operator", ["queue", "pause", "default"], 4),
        ("operator", ["type", "disable", "mail", "--yes"], 4),
        ("eve", ["--tenant", "acme", "job", "list"], 3),
        ("eve", ["--tenant", "acme", "job", "submit", "sweep"], 3),
    ],
)
def test_without_the_right_it_is_4_and_another_tenant_is_not_there(
    served: Served, monkeypatch: pytest.MonkeyPatch, key: str, words: list[str], code: int
) -> None:
    monkeypatch.setenv("GANTLINE_API_KEY", key)
    result = served.run(*served.on_server, *words)
    assert_refused(result, code)
    assert ("GANTLINE_API_KEY" in result.stderr) == (key in ("", "mallory"))
    assert not key or f"{key}." not in result.stderr


def test_who_may_act_need_not_be_allowed_to_look(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_API_KEY", "alice")
    job_id = told(served.run(*served.on_server, "-o", "json", "job", "submit", "sweep"))["jobId"]
    monkeypatch.setenv("GANTLINE_API_KEY", "canceller")
    done = told(served.run(*served.on_server, "-o", "json", "job", "cancel", job_id))
    assert done == [{"jobId": job_id, "status": "Cancelled", "changed": True}]


def test_the_tenant_is_that_of_the_key_unless_one_is_named(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = told(
        served.run(*served.on_server, "--tenant", "acme", "-o", "json", "job", "submit", "sweep")
    )["jobId"]
    monkeypatch.setenv("GANTLINE_API_KEY", "operator")
    row = told(served.run(*served.on_server, "-o", "json", "job", "get", job_id))
    assert row["tenantId"] == "acme"
    monkeypatch.setenv("GANTLINE_API_KEY", "eve")
    empty = served.run(*served.on_server, "job", "list")
    assert empty.stderr.startswith("No jobs found for the tenant of the API key. A key without")


def test_a_server_that_is_not_there_is_5(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for words in (["job", "list"], ["job", "submit", "x"], ["stats"], ["job", "cancel", NOBODY]):
        assert_refused(place.run("--url", f"http://127.0.0.1:{port}", *words), 5, "reached")


@pytest.mark.parametrize("status", ["200 OK", "302 Found", "404 Not Found", "500 Oh"])
def test_what_is_no_gantline_server_is_5(place: Place, status: str) -> None:
    server = ScriptedServer([answering(status, b"<html>")])
    try:
        assert_refused(place.run("--url", server.url, "stats"), 5)
    finally:
        server.stop()


@pytest.mark.parametrize("url", ["http://jobs.example.com", "jobs", "https://me:hush@host"])
def test_a_url_that_cannot_be_used_is_refused_as_usage(place: Place, url: str) -> None:
    result = place.run("--url", url, "stats")
    assert_refused(result, 2)
    assert "hush" not in result.stderr


def test_the_server_can_be_named_by_the_environment_or_a_file(
    served: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "gantline.toml").write_text(f'url = "{served.url}"\n')
    assert served.run("type", "list").exit_code == 0
    (place.folder / "gantline.toml").unlink()
    monkeypatch.setenv("GANTLINE_URL", served.url)
    assert served.run("type", "list").exit_code == 0
    # A flag is for this one command.
    assert told(served.run(*served.on_store, "-o", "json", "stats")) is not None
    assert_refused(served.run(*served.on_store, *served.on_server, "stats"), 2, "--store")


@pytest.mark.parametrize(
    "words",
    [
        ["db", "status"],
        ["db", "migrate"],
        ["doctor"],
        ["key", "list"],
        ["key", "create", "x"],
        ["api", "tests.cli.served_app:jobs"],
        ["worker", "tests.cli.served_app:jobs"],
        ["dev", "--no-reload", "tests.cli.served_app:jobs"],
    ],
)
def test_what_needs_the_store_refuses_a_server(
    place: Place, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("GANTLINE_KEY_PEPPER", "1:0123456789abcdefghijklmnopqrstuvwxyz")
    result = place.run("--url", "https://jobs.example.com", *words)
    assert result.exit_code == 2
    assert "needs the store itself" in result.stderr
    assert not place.database.exists()


def test_a_server_of_the_environment_does_not_keep_from_the_store(
    empty_store: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_URL", "https://jobs.example.com")
    for words in (["db", "status"], ["sessions"], ["job", "prune", "--older-than", "1d", "--yes"]):
        assert empty_store.run("--store", "sqlite:///gantline.db", *words).exit_code == 0
    monkeypatch.setenv("GANTLINE_STORE", "sqlite:///gantline.db")
    assert empty_store.run("db", "status").exit_code == 0


@pytest.mark.parametrize("words", ["db status", "doctor", "job prune --older-than 1d"])
def test_beside_a_server_of_the_environment_no_store_is_used_that_nobody_names(
    empty_store: Place, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Or the store of this folder would be taken for that of the server."""
    monkeypatch.setenv("GANTLINE_URL", "https://jobs.example.com")
    result = empty_store.run(*words.split())
    assert result.exit_code == 2
    assert "needs the store itself" in result.stderr
    assert "GANTLINE_URL names a server" in result.stderr


@pytest.mark.parametrize("words", ["job list --type nosuch", "dead list --type nosuch"])
def test_who_finds_nothing_on_a_server_learns_that_the_key_may_be_the_reason(
    served: Served, words: str
) -> None:
    on_store, on_server = served.both(*words.split())
    assert "A key without a role sees only its own jobs" in on_server.stderr
    assert "key" not in on_store.stderr


def test_the_key_is_no_setting_and_never_shown(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_API_KEY", "hush")
    assert "api_key" not in {setting.name for setting in SETTINGS}
    assert "hush" not in place.run("config", "show").output
    assert "hush" not in place.run("--url", "http://127.0.0.1:9", "stats").output
    assert place.run("--api-key", "hush", "stats").exit_code == 2


def test_the_audit_trail_is_the_same_on_a_server_and_on_its_store(
    served: Served, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        told(served.run(*served.on_server, "-o", "json", "queue", "pause", name))
        told(served.run(*served.on_server, "-o", "json", "queue", "resume", name))
    for words in (
        ["-o", "json", "audit", "list", "--action", "pauseQueue"],
        ["-o", "json", "audit", "list", "--limit", "3"],
        ["audit", "export"],
        ["audit", "checkpoint"],
    ):
        before, on_server = served.both(*words)
        after = served.run(*served.on_store, *words)
        # The server sums refusals of other tests up, some seconds later.
        assert on_server.stdout in (before.stdout, after.stdout)
        assert on_server.stdout
    kept = tmp_path / "trail.jsonl"
    kept.write_text(served.run(*served.on_server, "audit", "export").stdout, encoding="utf-8")
    words = ["audit", "verify", "--checkpoint", str(kept)]
    before, on_server = served.both(*words)
    assert on_server.exit_code == 0
    assert on_server.stderr in (before.stderr, served.run(*served.on_store, *words).stderr)
    refused = served.run(*served.on_server, "audit", "verify", "--all-tenants")
    assert_refused(refused, 2, "one tenant at a time")
    assert_refused(served.run(*served.on_server, "audit", "prune", "--before", "2h"), 2, "store")
