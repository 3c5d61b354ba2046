"""gantline job: what it prints, what it refuses, and with which exit code."""

import json
import signal
from datetime import datetime
from uuid import UUID, uuid4

import pytest

from gantline.manager.manager import JobManager
from gantline.manager.submitter import Submission
from gantline.testing.factories import make_job
from tests.cli.conftest import NOBODY, UNCHECKED, Place, assert_bad_option, assert_refused

JOB_KEYS = {
    "jobId",
    "jobType",
    "status",
    "state",
    "attempt",
    "maxAttempts",
    "queue",
    "group",
    "priority",
    "tenantId",
    "subjectId",
    "correlationId",
    "externalId",
    "createdAt",
    "scheduledAt",
    "expiresAt",
    "startedAt",
    "completedAt",
    "progress",
    "phase",
    "reason",
    "errorCode",
    "errorType",
    "errorMessage",
    "version",
}


def test_a_submit_prints_the_id_and_nothing_else_on_stdout(place: Place) -> None:
    result = place.run("-o", "json", "job", "submit", "index", '{"id": 1}')
    assert (result.exit_code, result.stderr) == (0, f"{UNCHECKED}\n")
    assert json.loads(result.stdout).keys() == {"jobId", "duplicate"}


def test_every_option_of_a_submit_reaches_the_job(place: Place) -> None:
    options = [
        "--queue",
        "docs",
        "--priority",
        "1",
        "--subject",
        "s1",
        "--max-attempts",
        "7",
        "--delay",
        "3600",
    ]
    job = place.json("job", "get", place.submit("index", '{"id": 1}', *options))
    assert job["queue"] == "docs"
    assert (job["priority"], job["subjectId"], job["maxAttempts"]) == (1, "s1", 7)
    assert (job["status"], job["state"]) == ("Queued", "Scheduled")


def test_a_submit_with_the_same_key_is_the_same_job(place: Place) -> None:
    first = place.submit("index", "1", "--key", "k")
    again = place.json("job", "submit", "index", "1", "--key", "k")
    assert again == {"jobId": first, "duplicate": True}


def test_a_key_that_was_used_for_something_else_fails_with_1(place: Place) -> None:
    place.submit("index", "1", "--key", "k")
    assert_refused(place.run("job", "submit", "index", "2", "--key", "k"), 1, "new key")


def test_a_payload_may_come_from_standard_input(place: Place) -> None:
    result = place.run("-o", "json", "job", "submit", "index", "-", stdin='{"id": 7}\n')
    assert result.exit_code == 0, result.stderr
    job = place.json("job", "get", json.loads(result.stdout)["jobId"])
    assert job["payload"] == {"id": 7}


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("{bad", "JSON"),
        ("", "JSON"),
        ("NaN", "JSON"),
        ("[" * 100 + "]" * 100, "nested"),
        (f'"{"x" * 70_000}"', "limit is 65536"),
    ],
    ids=["malformed", "empty", "nan", "too deep", "too large"],
)
def test_a_bad_payload_is_refused_as_usage(place: Place, payload: str, why: str) -> None:
    assert_refused(place.run("job", "submit", "index", "-", stdin=payload), 2, why)
    assert place.json("job", "list") == []


def test_a_payload_that_is_no_text_is_refused_as_usage(place: Place) -> None:
    assert_refused(place.run("job", "submit", "index", "-", stdin=b'"\xff"'), 2)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--delay", "nan"),
        ("--delay", "inf"),
        ("--delay", "1e300"),
        ("--delay", "-5"),
        ("--delay", "soon"),
        ("--max-attempts", "0"),
    ],
)
def test_a_number_out_of_range_is_refused_as_usage(place: Place, option: str, text: str) -> None:
    assert_bad_option(place.run("job", "submit", "index", "1", option, text), option)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--queue", ""),
        ("--queue", "q" * 10_000),
        ("--subject", "s" * 100_000),
        ("--key", "k" * 100_000),
    ],
    ids=["no queue", "long queue", "long subject", "long key"],
)
def test_a_text_out_of_range_is_refused_as_usage(place: Place, option: str, text: str) -> None:
    assert_refused(place.run("job", "submit", "index", "1", option, text), 2)


def test_an_empty_type_is_refused_as_usage(place: Place) -> None:
    assert_refused(place.run("job", "submit", "", "1"), 2)


def test_a_job_is_shown_with_payload_and_history(place: Place) -> None:
    job = place.json("job", "get", place.dead())
    assert job.keys() == JOB_KEYS | {"payload", "history", "session"}
    assert job["payload"] == {"secret": "hush"}
    assert [row["event"] for row in job["history"]] == ["failed"]
    assert job["history"][0]["errorCode"] == "BROKEN"


def test_a_job_is_shown_with_the_worker_that_runs_it_and_those_that_ran_it(place: Place) -> None:
    ended = place.dead("mail")
    assert place.json("job", "get", ended)["session"] is None
    header, row = place.run("job", "get", ended).stdout.splitlines()[-2:]
    assert ("session" in header.split(), "test" in row.split()) == (True, True)
    assert place.json("job", "get", ended)["history"][0]["session"] == "test"
    running = place.submit("index", "1")
    place.start_a_run("index")
    assert place.json("job", "get", running)["session"] == "test"


def test_a_job_that_no_tenant_has_is_not_looked_for_in_another(empty_store: Place) -> None:
    said = empty_store.run("job", "get", NOBODY, "--all-tenants").stderr
    assert said == f"Error: There is no job {NOBODY}.\n"


@pytest.mark.parametrize("verb", [("job", "get"), ("job", "watch"), ("dead", "show")])
def test_a_job_that_is_not_there_is_3(empty_store: Place, verb: tuple[str, str]) -> None:
    assert_refused(empty_store.run(*verb, NOBODY), 3, NOBODY)


@pytest.mark.parametrize("verb", ["cancel", "redrive"])
def test_acting_on_a_job_that_is_not_there_is_3(empty_store: Place, verb: str) -> None:
    assert empty_store.run("job", verb, NOBODY).exit_code == 3


@pytest.mark.parametrize(
    "words",
    [
        ("job", "get"),
        ("job", "cancel"),
        ("job", "redrive"),
        ("job", "watch"),
        ("dead", "show"),
        ("dead", "redrive", "--yes"),
        ("dead", "discard", "--yes"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "text", ["nope", "", "\x1b[31m", "ü" * 5000], ids=["word", "empty", "escape", "long"]
)
def test_what_is_no_uuid_is_refused_as_usage(
    place: Place, words: tuple[str, ...], text: str
) -> None:
    assert_refused(place.run(*words, text), 2, "UUID")


def test_a_list_has_every_key_and_never_a_payload(place: Place) -> None:
    place.submit("index", '{"secret": "hush"}')
    place.dead()
    for words in (("job", "list"), ("dead", "list")):
        for form in ("table", "json", "jsonl"):
            assert "hush" not in place.run("-o", form, *words).output
        for row in place.json(*words):
            assert row.keys() == JOB_KEYS


def test_jsonl_is_one_object_per_line(place: Place) -> None:
    ids = [place.submit("index", "1") for _ in range(3)]
    lines = place.run("-o", "jsonl", "job", "list").stdout.splitlines()
    assert [json.loads(line)["jobId"] for line in lines] == ids[::-1]
    got = place.run("-o", "jsonl", "job", "get", ids[0]).stdout.splitlines()
    assert len(got) == 1
    assert json.loads(got[0])["jobId"] == ids[0]


def test_an_empty_list_is_an_empty_array_or_no_line(empty_store: Place) -> None:
    assert empty_store.json("job", "list") == []
    assert empty_store.run("-o", "jsonl", "job", "list").stdout == ""


def test_a_list_is_filtered_by_status_type_queue_and_subject(place: Place) -> None:
    one = place.submit("index", "1", "--queue", "docs", "--subject", "s1")
    dead = place.dead()

    def listed(*options: str) -> list[str]:
        return [row["jobId"] for row in place.json("job", "list", *options)]

    for options in (["--status", "Queued"], ["--type", "index"], ["--queue", "docs"]):
        assert listed(*options) == [one]
    assert listed("--subject", "s1") == [one]
    assert listed("--status", "failed") == [dead]
    assert listed("--status", "pending", "--status", "ERROR") == [dead, one]


def test_a_list_that_is_cut_says_so_on_stderr(place: Place) -> None:
    for _ in range(3):
        place.submit("index", "1")
    result = place.run("-o", "json", "job", "list", "--limit", "2")
    assert len(json.loads(result.stdout)) == 2
    assert "--limit" in result.stderr


@pytest.mark.parametrize("name", ["dead_letter", "Dead-Lettered", "POISONED", "poison"])
def test_a_status_may_have_the_name_of_another_system(place: Place, name: str) -> None:
    place.submit("index", "1")
    assert place.json("job", "list", "--status", name) == []


def test_an_unknown_status_is_refused_with_the_known_ones(place: Place) -> None:
    assert_refused(place.run("job", "list", "--status", "nope"), 2, "nope", "Poisoned")


@pytest.mark.parametrize("limit", ["0", "-1", "10001", "many"])
def test_a_bad_limit_is_refused_as_usage(place: Place, limit: str) -> None:
    assert place.run("job", "list", "--limit", limit).exit_code == 2


def test_a_cancel_is_told_per_job_and_may_be_repeated(place: Place) -> None:
    job_id = place.submit("index", "1")
    row = {"jobId": job_id, "status": "Cancelled"}
    assert place.json("job", "cancel", job_id) == [{**row, "changed": True}]
    assert place.json("job", "cancel", job_id) == [{**row, "changed": False}]


def test_a_job_is_named_by_its_external_id_within_its_tenant(place: Place) -> None:
    given = str(uuid4())
    jobs = [make_job(1, external_id=UUID(given), tenant_id=one) for one in ("default", "other")]
    place.managed(lambda manager: manager.submit([Submission(job) for job in jobs]))
    ids = {job.tenant_id: str(job.job_id) for job in jobs}
    for tenant, job_id in ids.items():
        of_it = ("--tenant", tenant, "job")
        shown = place.json(*of_it, "get", given)
        assert (shown["jobId"], shown["externalId"], shown["history"]) == (job_id, given, [])
        assert place.json(*of_it, "cancel", given)[0]["jobId"] == job_id
        assert place.json(*of_it, "redrive", given)[0]["status"] == "Queued"
        place.json(*of_it, "cancel", given)
        assert len(place.json(*of_it, "get", given)["history"]) == 3
        assert place.run(*of_it, "delete", given, "--yes").exit_code == 0
        assert place.run(*of_it, "get", job_id).exit_code == 3


def test_across_tenants_an_external_id_names_no_job(place: Place) -> None:
    job = make_job(1, external_id=uuid4())
    place.managed(lambda manager: manager.submit([Submission(job)]))
    assert place.run("job", "get", str(job.external_id), "--all-tenants").exit_code == 3
    assert place.run("job", "get", str(job.job_id), "--all-tenants").exit_code == 0


def test_a_running_job_is_asked_to_cancel(place: Place) -> None:
    job_id = place.submit("index", "1")
    place.start_a_run("index")
    assert place.json("job", "cancel", job_id)[0]["status"] == "Running"
    assert place.json("job", "get", job_id)["state"] == "Cancelling"


def test_of_many_the_found_are_cancelled_and_the_missing_told(place: Place) -> None:
    job_id = place.submit("index", "1")
    result = place.run("-o", "json", "job", "cancel", NOBODY, job_id)
    assert [row["jobId"] for row in json.loads(result.stdout)] == [job_id]
    assert (result.exit_code, NOBODY in result.stderr) == (3, True)
    assert place.status(job_id) == "Cancelled"


def test_a_dead_job_is_queued_again_by_redrive(place: Place) -> None:
    job_id = place.dead()
    expected = {"jobId": job_id, "status": "Queued", "changed": True}
    assert place.json("job", "redrive", job_id) == [expected]
    entry = place.json("job", "get", job_id)["history"][-1]
    assert entry["event"] == "redriven"
    assert entry["actor"].startswith("cli:")


def test_a_redrive_names_the_job_that_has_taken_the_key(place: Place) -> None:
    job_id = place.dead(key="k")

    async def take_its_key(manager: JobManager) -> str:
        job = make_job("other", job_type="broken", idempotency_key="k")
        await manager.submit([Submission(job)])
        return str(job.job_id)

    holder = place.managed(take_its_key)
    refused = place.run("job", "redrive", job_id)
    said = f"The job {holder} has the idempotency key of this one by now."
    assert_refused(refused, 1, said, "if it fails, this one can be redriven")
    counted = place.run("-o", "json", "dead", "redrive", job_id)
    assert json.loads(counted.stdout) == {"redriven": 0, "failed": 1}
    assert "`gantline job redrive ID` says why" in counted.stderr


def test_what_a_status_does_not_allow_fails_with_1(place: Place) -> None:
    result = place.run("job", "cancel", place.dead())
    assert (result.exit_code, result.stderr.count("Error: ")) == (1, 1)
    assert "Traceback" not in result.output


@pytest.mark.parametrize("verb", ["cancel", "redrive"])
def test_a_verb_without_ids_is_refused_as_usage(place: Place, verb: str) -> None:
    assert place.run("job", verb).exit_code == 2


def test_a_tenant_does_not_see_or_touch_the_jobs_of_another(place: Place) -> None:
    mine = place.submit("index", "1")
    dead = place.dead()
    other = ("--tenant", "other")
    for words in (
        ("job", "get", mine),
        ("job", "cancel", mine),
        ("job", "redrive", dead),
        ("job", "watch", dead, "--timeout", "5"),
        ("dead", "show", dead),
        ("dead", "redrive", dead, "--yes"),
        ("dead", "discard", dead, "--yes"),
    ):
        result = place.run(*other, *words)
        assert result.exit_code == 3, (words, result.output)
        assert "default" not in result.output
        assert "of the tenant 'other'. If it is of another tenant, name" in result.stderr
    for view in (("job", "list"), ("dead", "list"), ("stats",), ("queue", "list")):
        assert place.json(*other, *view) == []
    assert (place.status(mine), place.status(dead)) == ("Queued", "Failed")


def test_a_job_is_submitted_for_the_tenant_that_is_named(place: Place) -> None:
    job_id = place.json("--tenant", "acme", "job", "submit", "index", "1")["jobId"]
    assert place.run("job", "get", job_id).exit_code == 3
    assert place.json("--tenant", "acme", "job", "get", job_id)["tenantId"] == "acme"


def test_watching_an_ended_job_prints_it_and_fails_if_it_failed(place: Place) -> None:
    job_id = place.dead()
    result = place.run("-o", "json", "job", "watch", job_id)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["status"] == "Failed"
    assert "Failed, attempt 1/3" in result.stderr


def test_a_watch_that_runs_out_of_time_is_124(place: Place) -> None:
    result = place.run("job", "watch", place.submit("index", "1"), "--timeout", "0.05")
    assert (result.exit_code, result.stdout) == (124, "")
    assert "Error: the time is up." in result.stderr


def test_a_watch_without_any_time_looks_once(place: Place) -> None:
    words = ("--timeout", "0")
    waiting = place.run("job", "watch", place.submit("index", "1"), *words)
    assert (waiting.exit_code, "Queued, attempt 1/3" in waiting.stderr) == (124, True)
    ended = place.run("-o", "json", "job", "watch", place.dead(), *words)
    assert (ended.exit_code, json.loads(ended.stdout)["status"]) == (1, "Failed")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("60s", 60), ("5m", 300), ("1d", 86400)])
def test_a_delay_may_have_a_unit(place: Place, text: str, seconds: int) -> None:
    job = place.json("job", "get", place.submit("index", "1", "--delay", text))
    created, due = (datetime.fromisoformat(job[name]) for name in ("createdAt", "scheduledAt"))
    assert abs((due - created).total_seconds() - seconds) < 10
    assert place.run("job", "watch", job["jobId"], "--timeout", "0s").exit_code == 124


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "soon", ""])
def test_a_time_to_watch_that_is_none_is_refused_as_usage(place: Place, text: str) -> None:
    job_id = place.submit("index", "1")
    assert_bad_option(place.run("job", "watch", job_id, "--timeout", text), "--timeout")


def test_an_interrupted_watch_is_130(place: Place) -> None:
    with place.process("job", "watch", place.submit("index", "1")) as program:
        program.wait_for("Queued")
        program.process.send_signal(signal.SIGINT)
        assert program.exit_code() == 130
        assert program.stdout == ""
        assert "Traceback" not in program.stderr


def test_a_watch_ends_when_its_job_does(place: Place) -> None:
    job_id = place.submit("index", "1")
    with place.process("-o", "jsonl", "job", "watch", job_id) as program:
        program.wait_for("Queued")
        assert place.run("job", "cancel", job_id).exit_code == 0
        assert program.exit_code() == 1
        assert json.loads(program.stdout)["status"] == "Cancelled"


def test_why_says_what_hinders_a_job_and_the_command_that_helps(place: Place) -> None:
    job_id = place.submit("index", "1", "--queue", "long" + " name" * 20)
    place.run("queue", "pause", "long" + " name" * 20)
    found = place.json("job", "why", job_id)
    assert [one["code"] for one in found["reasons"]] == ["QUEUE_PAUSED", "NO_WORKERS"]
    lines = place.run("job", "why", job_id).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"{job_id}  Queued  index in")
    assert lines[-4:-2] == ["2. NO_WORKERS", "   No live worker is registered in this store."]
    assert lines[-2:] == [
        "   -> Start one: gantline worker",
        "   -> Does one use another store? gantline doctor",
    ]
    assert_refused(place.run("job", "why", NOBODY), 3, NOBODY)
    assert place.run("job", "why", "nonsense").exit_code == 2
