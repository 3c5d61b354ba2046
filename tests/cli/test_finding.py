"""Finding jobs again from the command line: filters, sums, events, and removing one."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from click.testing import Result

from gantline.api.documents import ListedJob
from gantline.cli.type_stats import measure
from gantline.contract.clock import SystemClock
from gantline.contract.job import DELIVERY_QUEUE
from gantline.contract.outcome import Success
from gantline.contract.submission import NewJob
from gantline.contract.webhook import DELIVERY_TYPE
from gantline.manager.manager import Ending, JobManager
from gantline.manager.submitter import Submission
from gantline.testing.conformance.bench import HOUR
from gantline.testing.conformance.emitting import emitted
from gantline.testing.factories import lane_requests, make_job, register_sessions
from tests.cli.conftest import NOBODY, Place, assert_bad_option, assert_refused
from tests.servers.http_api import ApiProcess


class Where(Place):
    """A store of its own, asked itself or by a server before it."""

    def __init__(self, folder: Path, words: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._words = words
        self.is_served = words[0] == "--url"

    def run(self, *words: str, stdin: str | bytes | None = None) -> Result:
        return super().run(*self._words, *words, stdin=stdin)


@pytest.fixture(params=["store", "server"])
def where(
    request: pytest.FixtureRequest, empty_store: Place, monkeypatch: pytest.MonkeyPatch
) -> Any:
    url = f"sqlite:///{empty_store.database}"
    if request.param == "store":
        yield Where(empty_store.folder, ("--store", url))
        return
    monkeypatch.setenv("GANTLINE_API_KEY", "system")
    served = ApiProcess("tests.client.served:app", store=url)
    yield Where(empty_store.folder, ("--url", served.url))
    served.stop()


def insert(place: Place, job_type: str = "index", **fields: Any) -> str:
    fields.setdefault("created_at", SystemClock().now())
    delay = fields.pop("delay", timedelta(0))
    job = make_job(None, job_type=job_type, **fields)

    async def submit(manager: JobManager) -> None:
        await manager.submit([Submission(job, delay)])

    place.managed(submit)
    return str(job.job_id)


def delivery(place: Place) -> str:
    """Store one as the fan-out does: nobody else may submit to its queue."""
    job = make_job(
        None, job_type=DELIVERY_TYPE, queue=DELIVERY_QUEUE, created_at=SystemClock().now()
    )
    place.stored(lambda store: store.insert([NewJob(job, b"")]))
    return str(job.job_id)


def found(place: Place, *words: str) -> list[str]:
    return [one["jobId"] for one in place.json(*words)]


def test_a_list_is_narrowed_by_what_is_known_of_a_job(where: Where) -> None:
    now = SystemClock().now()
    old = insert(where, created_at=now - timedelta(days=2), subject_id="s")
    new = insert(where, created_by="key:1", correlation_id="story")
    dead = where.dead("broken")
    for words, expected in (
        ("--since 1d", {new, dead}),
        ("--until 24h", {old}),
        (f"--since {(now - timedelta(days=3)).date()} --until 1d", {old}),
        (f"--since {now:%Y-%m-%dT%H:%M:%SZ} --status Queued", {new}),
        ("--code BROKEN --code OTHER", {dead}),
        ("--code OTHER", set()),
        ("--owner key:1", {new}),
        ("--correlation story", {new}),
        ("--subject s", {old}),
        ("--attempts 1", {dead}),
        ("--attempts 2", set()),
        ("--type index --queue default --since 1h", {new}),
    ):
        assert set(found(where, "job", "list", *words.split())) == expected, words
    assert found(where, "dead", "list", "--code", "BROKEN", "--since", "1h") == [dead]
    assert found(where, "dead", "list", "--until", "1h") == []


def test_a_list_takes_what_is_shown_as_state_and_what_is_due(where: Where) -> None:
    later = insert(where, delay=timedelta(hours=2))
    due = insert(where)
    for words, expected in (
        ("--status Scheduled", [later]),
        ("--status queued", [due, later]),
        ("--status Retrying --status Cancelling", []),
        ("--due-before 1h", [due]),
        ("--due-before 3h", [due, later]),
        ("--due-before 3h --status Scheduled", [later]),
        (f"--due-before {SystemClock().now() + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}", [due]),
    ):
        assert sorted(found(where, "job", "list", *words.split())) == sorted(expected), words
    refused = where.run("job", "list", "--status", "Nowhere")
    assert_refused(refused, 2, "Scheduled, Retrying, Cancelling")


def test_what_is_no_time_is_refused_with_what_is(place: Place) -> None:
    for words in ("--since yesterday", "--until 2d4h", "--due-before tomorrow"):
        refused = place.run("job", "list", *words.split())
        assert_bad_option(refused, words.split()[0])
        assert "2h, 30d or 2026-11-01T12:00" in " ".join(refused.stderr.split())


def test_deliveries_are_shown_to_those_who_ask_for_them(where: Where) -> None:
    own, mine = delivery(where), insert(where)
    assert found(where, "job", "list") == [mine]
    assert set(found(where, "job", "list", "--internal")) == {mine, own}
    assert found(where, "job", "list", "--type", DELIVERY_TYPE) == [own]
    assert [one["jobType"] for one in where.json("type", "stats")] == ["index"]
    both = where.json("type", "stats", "--internal")
    assert [one["jobType"] for one in both] == [DELIVERY_TYPE, "index"]


def test_all_tenants_are_looked_at_together(where: Where) -> None:
    ours, theirs = insert(where), insert(where, tenant_id="theirs")
    assert found(where, "job", "list") == [ours]
    rows = where.json("job", "list", "--all-tenants")
    assert {one["jobId"]: one["tenantId"] for one in rows} == {ours: "default", theirs: "theirs"}
    table = where.run("job", "list", "--all-tenants").stdout
    assert "tenantId" in table
    both = where.run("--tenant", "theirs", "job", "list", "--all-tenants")
    assert both.exit_code == 2
    assert "Both --tenant and --all-tenants are given" in both.stderr
    for words in ("stats", "type stats", "dead summary", "queue list"):
        result = where.run("-o", "json", *words.split(), "--all-tenants")
        if where.is_served:
            assert_refused(result, 2, "one tenant at a time", "--tenant")
        else:
            assert result.exit_code == 0, result.stderr
    if not where.is_served:
        (counted,) = where.json("stats", "--all-tenants")
        assert counted["queued"] == 2
        assert where.json("job", "get", theirs, "--all-tenants")["tenantId"] == "theirs"
    assert where.run("job", "cancel", theirs, "--all-tenants").exit_code == 2, "it only looks"


def test_a_summary_counts_dead_letters_and_names_one_of_each(where: Where) -> None:
    assert where.run("dead", "summary").stderr.startswith("There are no dead letters of")
    where.dead("mail", message="first")
    newest, other = where.dead("mail", message="second"), where.dead("broken", tenant_id="theirs")
    where.dead(DELIVERY_TYPE)
    where.dead("fewer")
    row, fewer = where.json("dead", "summary")
    assert (fewer["jobType"], fewer["jobs"]) == ("fewer", 1)
    assert len(where.json("dead", "summary", "--internal")) == 3
    expected = {"jobs": 2, "jobType": "mail", "reason": "PermanentError", "status": "Failed"}
    assert expected.items() <= row.items()
    assert (row["jobId"], row["errorCode"], row["errorMessage"]) == (newest, "BROKEN", "second")
    assert row["completedAt"]
    told = where.run("dead", "summary")
    assert "BROKEN: second" in told.stdout
    assert "gantline dead redrive --type mail" in told.stderr
    assert other not in told.stdout
    theirs = where.run("--tenant", "theirs", "dead", "summary").stderr
    assert "gantline --tenant theirs dead show ID" in theirs
    assert "gantline --tenant theirs dead redrive --type broken" in theirs


def test_a_summary_counts_each_code_and_says_what_it_did_not_look_at(where: Where) -> None:
    for code in ("DECLINED", "BROKEN", "DECLINED"):
        where.dead("mail", code=code)
    rows = where.json("dead", "summary")
    assert [(one["errorCode"], one["jobs"]) for one in rows] == [("DECLINED", 2), ("BROKEN", 1)]
    assert "in all" not in where.run("dead", "summary").stderr
    bounded = where.run("dead", "summary", "--last", "2")
    assert "There are 3 in all; of each type and reason the newest 2 were" in bounded.stderr


def test_a_job_that_has_ended_is_deleted(where: Where) -> None:
    dead = where.dead("broken")
    asked = where.run("job", "delete", dead)
    assert_refused(asked, 2, "delete 1 job with all that is known of it.", "--yes")
    assert_refused(where.run("job", "delete", dead, NOBODY), 2, "2 jobs", "known of them.")
    assert where.json("job", "delete", dead, "--yes") == [{"jobId": dead, "deleted": True}]
    assert where.run("job", "get", dead).exit_code == 3
    assert_refused(where.run("job", "delete", dead, "--yes"), 3, dead)
    assert_refused(where.run("job", "get", NOBODY), 3, f"{NOBODY} of the tenant ", "by --tenant.")


def test_one_that_waits_is_not_deleted_and_others_are(where: Where) -> None:
    dead, waits = where.dead("broken"), insert(where)
    done = where.run("-o", "json", "job", "delete", dead, waits, NOBODY, "--yes")
    assert [one["jobId"] for one in json.loads(done.stdout)] == [dead]
    assert done.exit_code == 1
    assert "A job that is Queued cannot be deleted. Cancel it first." in done.stderr
    assert NOBODY in done.stderr
    assert where.status(waits) == "Queued"


def test_a_delete_is_written_down_before_it_is_done(place: Place) -> None:
    dead = place.dead("broken")
    place.json("job", "delete", dead, "--yes")
    (entry,) = place.json("audit", "list")
    assert (entry["type"], entry["aggregate"]) == ("deleteJob", f"job:{dead}")


def test_events_are_shown_oldest_first(place: Place) -> None:
    first, second = place.dead("mail"), place.dead("broken")
    theirs = place.dead("mail", tenant_id="theirs")
    rows = place.json("events")
    assert [(one["event"], one["jobId"]) for one in rows] == [("failed", first), ("failed", second)]
    assert rows[0].items() >= {"jobType": "mail", "errorCode": "BROKEN", "attempt": 1}.items()
    assert found(place, "events", "--type", "broken") == [second]
    assert found(place, "events", "--last", "1") == [second]  # the newest is another tenant's
    assert found(place, "events", "--last", "1", "--all-tenants") == [theirs]
    table = place.run("events", "--all-tenants").stdout
    assert re.search(rf"\d\d:\d\d:\d\d  failed  {theirs}  theirs +mail +BROKEN: for good", table)
    nothing = place.run("events", "--type", "nope")
    assert (nothing.stdout, nothing.exit_code) == ("", 0)
    assert "no such events of the tenant 'default'" in nothing.stderr


def test_domain_events_are_shown_before_the_end_of_their_job(place: Place) -> None:
    async def complete(manager: JobManager) -> str:
        job = make_job(job_type="sign", created_at=SystemClock().now())
        await manager.submit([Submission(job)])
        await register_sessions(manager._store, "test")
        (run,) = await manager.claim("test", uuid4(), lane_requests("sign"), lease=HOUR)
        await manager.settle([Ending(run, Success(emitted=emitted({"grams": 7})))])
        return str(job.job_id)

    job_id = place.managed(complete)
    shipped, completed = place.json("events")
    assert (shipped["event"], shipped["jobId"]) == ("ORDER_SHIPPED", job_id)
    assert (shipped["reason"], shipped["attempt"]) == ("Order:o/ü-1", None)
    assert (completed["event"], completed["attempt"]) == ("completed", 1)


def test_the_last_events_are_those_that_match_however_many_came_after_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.cli.store_backend._PAGE", 2)
    mine = [place.dead("mail") for _ in range(3)]
    for _ in range(4):
        place.dead("mail", tenant_id="theirs")
    delivered = place.dead(DELIVERY_TYPE)
    assert found(place, "events", "--last", "2") == mine[1:]
    assert found(place, "events", "--last", "9") == mine
    assert found(place, "events", "--last", "0") == []
    assert found(place, "events", "--last", "1", "--type", DELIVERY_TYPE) == [delivered]
    monkeypatch.setattr("gantline.cli.store_backend.MOST_EVENTS", 6)
    assert found(place, "events", "--last", "9") == mine[2:]


@pytest.mark.parametrize(("option", "named"), [("--type", "mial"), ("--queue", "defualt")])
@pytest.mark.parametrize("words", ["job list", "dead list"])
def test_a_list_that_is_empty_for_a_name_that_no_job_has_names_the_one_alike(
    where: Where, words: str, option: str, named: str
) -> None:
    where.dead("mail")
    meant = "mail" if option == "--type" else "default"
    said = where.run(*words.split(), option, named).stderr
    assert said.startswith("No jobs found for the tenant ")
    assert f"Is {meant!r} meant?" in said
    assert "meant?" not in where.run(*words.split(), option, meant, "--code", "NOSUCH").stderr


@pytest.mark.xdist_group("processes")
def test_events_are_followed_until_interrupted(where: Where) -> None:
    if where.is_served:
        assert_refused(where.run("events"), 2, "only new events", "--follow")
    words = (*where._words, "-o", "jsonl", "events", "--follow")
    with where.process(*words) as following:

        def ends() -> list[dict[str, Any]]:
            """A stream that opens while a job goes on begins with the state of that job."""
            whole = following.stdout.rpartition("\n")[0].splitlines()
            return [row for row in map(json.loads, whole) if row["event"] != "state"]

        def is_heard() -> bool:
            """A stream begins when it is open, which nobody is shown."""
            where.dead("mail")
            return bool(ends())

        where.eventually(is_heard, "an event is shown")
        first = ends()[0]
        assert (first["event"], first["status"], first["errorCode"]) == (
            "failed",
            "Failed",
            "BROKEN",
        )


def listed(run_seconds: float | None, wait_seconds: float = 0, **fields: Any) -> ListedJob:
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    started_at = created_at + timedelta(seconds=wait_seconds)
    is_run = run_seconds is not None
    document: dict[str, Any] = {
        **dict.fromkeys(ListedJob.__struct_fields__),
        "job_id": UUID(int=int(1000 * (run_seconds or 0))),
        "attempt": 1,
        "created_at": created_at,
        "started_at": started_at if is_run else None,
        "completed_at": started_at + timedelta(seconds=run_seconds or 0),
    }
    return ListedJob(**document | fields)


def test_a_measurement_is_of_jobs_that_ran() -> None:
    jobs = [listed(n / 10, wait_seconds=n) for n in range(101)]
    measured = measure([*jobs, listed(None)])
    assert measured["measured"] == 101
    assert (measured["runP50Seconds"], measured["runP95Seconds"]) == (5, 9.5)
    assert (measured["waitP50Seconds"], measured["waitP95Seconds"]) == (50, 95)
    assert measured["slowestSeconds"] == 10
    assert measured["slowestJobId"] == str(UUID(int=10_000))
    assert measured["slowest"] == f"10 s: {UUID(int=10_000)}"


def test_of_a_job_that_was_tried_again_the_wait_is_not_known() -> None:
    assert measure([listed(1, wait_seconds=60, attempt=2)])["waitP50Seconds"] is None
    due = datetime(2026, 1, 1, 0, 0, 50, tzinfo=UTC)
    assert measure([listed(1, wait_seconds=60, scheduled_at=due)])["waitP50Seconds"] == 10
    nothing = measure([])
    assert (nothing["measured"], nothing["slowest"], nothing["runP95Seconds"]) == (0, None, None)
    assert msgspec.json.encode(nothing)


def test_types_are_counted_and_measured(where: Where) -> None:
    where.dead("mail")
    insert(where, "mail")
    insert(where, "index")
    index, mail = where.json("type", "stats")
    assert (index["jobType"], index["queued"], index["measured"]) == ("index", 1, 0)
    assert (mail["queued"], mail["failed"], mail["measured"]) == (1, 1, 1)
    assert mail["runP50Seconds"] == mail["slowestSeconds"] >= 0
    (alone,) = where.json("type", "stats", "mail", "--last", "1")
    assert alone["jobType"] == "mail"
    header, of_index, of_mail = where.run("type", "stats").stdout.splitlines()
    assert "waited p50/p95 (s)" in header
    assert of_mail.endswith(f" s: {mail['slowestJobId']}")
    assert len(of_index) < len(of_mail)
