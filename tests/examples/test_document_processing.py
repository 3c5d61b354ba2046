"""Document processing: every endpoint, every refusal, and no personal data where others look."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from examples.document_processing import text as texts
from examples.document_processing.jobs import refuse_personal_data
from examples.document_processing.samples import SAMPLES
from gantline import Gantline, InvalidInput, JobDefaults
from tests.examples.document_house import House, Visitor, house

pytestmark = pytest.mark.xdist_group("examples")

PERSONAL = (
    "Quimby",
    "harriet.quimby",
    "7946 0958",
    "4111 1111",
    "Okafor",
    "Mustermann",
    "DE89 3704",
    "verwaltung@",
    "23125 0100",
    "Dubois",
    "FR14 2004",
    "99 00 12",
)
LETTER, CONTRACT, COMPLAINT = (sample.title for sample in SAMPLES)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("house")) as one:
        yield one


@pytest.fixture
def ada(opened: House) -> Visitor:
    return opened.person("ada")


def id_of(document: dict[str, Any]) -> str:
    found: str = document["documentId"]
    return found


# -- what it does ---------------------------------------------------------------------------------


def test_a_new_document_is_processed_and_then_indexed(ada: Visitor) -> None:
    text = "Please write to mia@example.net.\n\nThe report is late, and the report is long."
    response = ada.post("/api/documents", {"title": "Reminder", "text": text})
    accepted = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == accepted["statusUrl"]
    assert ada.end_of(accepted["jobId"])["result"] == {"hidden": 1}
    (following,) = [
        job
        for job in ada.get(f"/api/jobs?subjectId={accepted['subjectId']}").json()["items"]
        if job["jobType"] == "ai-indexing"
    ]
    assert ada.end_of(following["jobId"])["result"]["language"] == "en"
    document = ada.documents()["Reminder"]
    assert document["redacted"] == text.replace("mia@example.net", "[e-mail]")
    assert (document["isMine"], document["hidden"]) == (True, 1)
    assert document["findings"]["index"]["keywords"]["report"] == 2


def test_an_analysis_is_enqueued_followed_and_read(ada: Visitor) -> None:
    document_id = id_of(ada.documents()[LETTER])
    response = ada.enqueue(document_id)
    accepted = response.json()
    assert response.status_code == 202
    assert list(accepted) == ["jobId", "subjectId", "statusUrl", "status", "duplicate"]
    assert accepted["statusUrl"] == f"/api/jobs/{accepted['jobId']}/status"
    assert response.headers["retry-after"] == "1"
    status = ada.end_of(accepted["jobId"])
    assert (status["status"], status["subjectId"]) == ("Completed", document_id)
    assert status["result"] == {"words": 98, "sentences": 9}
    assert ada.documents()[LETTER]["findings"]["statistics"]["words"] == 98
    again = ada.enqueue(document_id).json()
    assert (again["jobId"], again["duplicate"]) == (accepted["jobId"], True)


def test_a_summary_is_made_of_what_is_not_personal(ada: Visitor) -> None:
    document_id = id_of(ada.documents()[LETTER])
    status = ada.end_of(ada.enqueue(document_id, "summary").json()["jobId"])
    assert status["result"] == {"words": 98, "sentences": 9}  # the summary itself is no status
    summary = ada.documents()[LETTER]["findings"]["summary"]["text"]
    assert "treatment" in summary
    assert not any(word in summary for word in PERSONAL)


def test_an_analysis_waits_for_the_processing_without_costing_an_attempt(
    opened: House, ada: Visitor
) -> None:
    new = ada.post("/api/documents", {"title": "Slow", "text": "One word."}).json()
    ada.end_of(new["jobId"])
    opened.sql("UPDATE document SET redacted = NULL WHERE id = ?", new["subjectId"])
    job_id = ada.enqueue(new["subjectId"]).json()["jobId"]
    with ada.client.stream("GET", f"/api/jobs/{job_id}/events") as events:
        assert "event: snoozed" in events.iter_lines()
    opened.sql("UPDATE document SET redacted = text WHERE id = ?", new["subjectId"])
    status = ada.end_of(job_id)
    assert (status["status"], status["attempt"]) == ("Completed", 1)


def test_what_cannot_be_done_fails_with_a_code(ada: Visitor) -> None:
    accepted = ada.post("/api/documents", {"title": "Nothing", "text": " "}).json()
    status = ada.end_of(accepted["jobId"])
    assert (status["status"], status["errorCode"]) == ("Failed", "DOCUMENT_EMPTY")


# -- who is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/documents"),
        ("POST", "/api/documents"),
        ("POST", "/api/analysis/enqueue"),
        ("GET", "/api/jobs"),
        ("GET", f"/api/jobs/{UUID(int=1)}/status"),
        ("GET", f"/api/jobs/{UUID(int=1)}/events"),
        ("GET", "/api/events"),
        ("GET", "/api/job-types"),
        ("POST", "/api/job-types/ai-analyze/disable"),
    ],
)
def test_who_is_not_logged_in_is_refused(opened: House, method: str, path: str) -> None:
    body = {"title": "a", "text": "b"}
    client = opened.visitor().client
    for cookies in ({}, {"session": "made-up"}):
        sent = {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        response = client.request(method, path, json=body, headers=sent)
        assert (response.status_code, response.json()["errorCode"]) == (401, "UNAUTHENTICATED")
        assert response.headers["www-authenticate"] == "Cookie"
        assert response.headers["content-type"] == "application/problem+json"


def test_nobody_logs_in_as_who_does_not_exist(opened: House) -> None:
    visitor = opened.visitor()
    assert visitor.post("/login", {"person": "mallory"}).status_code == 401
    assert visitor.get("/api/documents").status_code == 401


@pytest.fixture
def analysis_of_ada(ada: Visitor) -> str:
    """A job about a document that nobody else may read."""
    job_id: str = ada.enqueue(id_of(ada.documents()[LETTER])).json()["jobId"]
    return job_id


@pytest.mark.parametrize(("person", "status"), [("cleo", 404), ("ben", 403)])
def test_a_job_is_for_who_may_read_its_document(
    opened: House, analysis_of_ada: str, person: str, status: int
) -> None:
    """Another company is not even told that there is one."""
    visitor = opened.person(person)
    for path in ("status", "events", "history", "attempts"):
        assert visitor.get(f"/api/jobs/{analysis_of_ada}/{path}").status_code == status
    for deed in ("cancel", "redrive"):
        assert visitor.post(f"/api/jobs/{analysis_of_ada}/{deed}").status_code == status
    listed = [job["jobId"] for job in visitor.get("/api/jobs").json()["items"]]
    assert analysis_of_ada not in listed
    assert LETTER not in visitor.documents()


@pytest.mark.parametrize("person", ["cleo", "ben", "olga"])
def test_a_document_that_one_may_not_read_does_not_exist(
    opened: House, ada: Visitor, person: str
) -> None:
    visitor = opened.person(person)
    theirs = visitor.enqueue(id_of(ada.documents()[LETTER]))
    nobodys = visitor.enqueue(str(uuid4()))
    for response in (theirs, nobodys):
        assert (response.status_code, response.json()["errorCode"]) == (404, "NOT_FOUND")
    assert theirs.json()["detail"] == nobodys.json()["detail"]


def test_who_shares_a_document_shares_what_is_done_with_it(opened: House, ada: Visitor) -> None:
    ben = opened.person("ben")
    document_id = id_of(ben.documents()[CONTRACT])
    job_id = ada.enqueue(document_id).json()["jobId"]
    assert ben.end_of(job_id)["status"] == "Completed"
    assert ben.documents()[CONTRACT]["isMine"] is False
    assert ben.enqueue(document_id).json()["duplicate"] is True


@pytest.mark.parametrize("subject", ["ones own", "theirs"])
def test_naming_another_subject_gets_nobody_at_a_text(
    opened: House, ada: Visitor, subject: str
) -> None:
    """By the general endpoint a caller names the subject; the job still reads as its owner."""
    cleo = opened.person("cleo")
    theirs, own = id_of(ada.documents()[LETTER]), id_of(cleo.documents()[COMPLAINT])
    response = cleo.post(
        "/api/jobs",
        {
            "jobType": "ai-analyze",
            "subjectId": own if subject == "ones own" else theirs,
            "payload": {"documentId": theirs, "type": "summary"},
        },
    )
    if subject == "theirs":
        assert response.status_code == 403
    else:
        status = cleo.end_of(response.json()["jobId"])
        assert (status["status"], status["errorCode"]) == ("Failed", "DOCUMENT_UNKNOWN")


# -- the kill switch ------------------------------------------------------------------------------


def test_an_operator_switches_a_type_off_while_it_runs(opened: House, ada: Visitor) -> None:
    olga, document_id = opened.person("olga"), id_of(ada.documents()[CONTRACT])
    assert ada.post("/api/job-types/ai-analyze/disable").status_code == 403
    assert olga.post("/api/job-types/ai-analyze/disable").json()["disabled"] is True
    try:
        shown = {
            one["jobType"]: one["disabled"] for one in ada.get("/api/job-types").json()["items"]
        }
        assert shown == {"ai-analyze": True, "ai-indexing": False, "document-processing": False}
        refused = ada.enqueue(document_id, "summary")
        problem = refused.json()
        assert (refused.status_code, problem["errorCode"]) == (503, "JOB_TYPE_DISABLED")
        assert problem["retryable"] is True
        assert int(refused.headers["retry-after"]) >= 1
        assert "operator has stopped it" in ada.get(problem["type"]).text
    finally:
        assert olga.post("/api/job-types/ai-analyze/enable").json()["disabled"] is False
    assert ada.enqueue(document_id, "summary").status_code == 202


def test_where_a_new_document_cannot_be_processed_it_is_not_kept(
    opened: House, ada: Visitor
) -> None:
    """It and its job are one transaction: there is no document that nobody works on."""
    olga = opened.person("olga")
    olga.post("/api/job-types/document-processing/disable")
    try:
        refused = ada.post("/api/documents", {"title": "Too early", "text": "text"})
        assert (refused.status_code, refused.json()["errorCode"]) == (503, "JOB_TYPE_DISABLED")
        assert "Too early" not in ada.documents()
    finally:
        olga.post("/api/job-types/document-processing/enable")


def test_the_operator_sees_jobs_and_no_document(opened: House, analysis_of_ada: str) -> None:
    olga = opened.person("olga")
    assert olga.get(f"/api/jobs/{analysis_of_ada}/status").json()["jobType"] == "ai-analyze"
    assert olga.documents() == {}


# -- personal data --------------------------------------------------------------------------------


def all_that_gantline_keeps(database: Path) -> bytes:
    """Every cell of its tables: payloads, results, errors with their detail, events, audit."""
    with closing(sqlite3.connect(database)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'gantline_%'"
        ).fetchall()
        rows = [
            row
            for (table,) in tables
            for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608  # our own
        ]
    cells = [cell for row in rows for cell in row if cell is not None]
    return b"\n".join(cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells)


def test_personal_data_is_in_no_job_event_error_or_log(
    opened: House,
    ada: Visitor,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the code fails over the text itself, and says so with all of it."""
    caplog.set_level(logging.DEBUG)
    letter = {"title": "Letter to Mrs Quimby", "text": SAMPLES[0].text}
    document = ada.post("/api/documents", letter).json()
    ended = [ada.end_of(document["jobId"])]
    ended.append(ada.end_of(ada.enqueue(document["subjectId"], "summary").json()["jobId"]))

    redact = texts.redact

    def failing(text: str) -> Any:
        if "Mrs" in text or "[name]" in text:
            raise ValueError(f"cannot read {text!r}")
        return redact(text)

    monkeypatch.setattr(texts, "redact", failing)
    monkeypatch.setattr(texts, "sentences_of", failing)
    ended.append(ada.end_of(ada.post("/api/documents", letter).json()["jobId"]))
    ended.append(ada.end_of(ada.enqueue(document["subjectId"], "statistics").json()["jobId"]))
    assert [one["errorCode"] for one in ended] == [None, None, "TEXT_UNREADABLE", "TEXT_UNREADABLE"]

    told = [ada.get(f"/api/jobs/{one['jobId']}/history").text for one in ended]
    kept = all_that_gantline_keeps(opened.database).decode(errors="replace")
    where = "ValueError in test_document_processing.py, line"
    assert where in kept
    assert where in caplog.text
    for text in (kept, caplog.text, *told, *map(str, ended)):
        assert [word for word in PERSONAL if word in text] == []


def test_an_invalid_body_is_not_repeated(ada: Visitor) -> None:
    wrong = {"title": "harriet.quimby@example.com" * 10, "text": "Mrs Quimby"}
    response = ada.post("/api/documents", wrong)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "#/title"
    assert "quimby" not in response.text.lower()
    sent = {"documentId": "harriet.quimby@example.com", "type": "statistics"}
    refused = ada.post("/api/analysis/enqueue", sent)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/documentId")
    assert "quimby" not in refused.text


async def test_a_payload_with_personal_data_is_refused_whatever_its_type() -> None:
    jobs = Gantline("memory://", defaults=JobDefaults(payload_check=refuse_personal_data))

    @jobs.job("later")
    async def later(payload: dict[str, Any]) -> None: ...

    async with jobs:
        await later.submit({"id": str(uuid4()), "amount": 7})
        with pytest.raises(InvalidInput, match=r"personal data \(e-mail\)") as refused:
            await later.submit({"to": [{"address": "mia@example.net"}]})
        assert "mia" not in str(refused.value)


# -- the work itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("to a.b+c@mail.example.org.", "to [e-mail]."),
        ("call +44 20 7946 0958 now", "call [phone] now"),
        ("call 030/23125-0100", "call [phone]"),
        ("IBAN GB82 WEST 1234 5698 7654 32.", "IBAN [iban]."),
        ("IBAN GB82 WEST 1234 5698 7654 33.", "IBAN GB82 WEST 1234 5698 7654 33."),
        ("card 4111-1111-1111-1111", "card [card]"),
        ("order 4111-1111-1111-1112", "order 4111-1111-1111-1112"),
        ("Name: Ada Lovelace, born", "Name: [name], born"),
        ("for Mrs. Ada King and Herrn Karl von Linde", "for [name] and [name]"),
        ("The Doctor came. M is a letter.", "The Doctor came. M is a letter."),
        ("in 2026, for 1 250 000 people", "in 2026, for 1 250 000 people"),
    ],
)
def test_personal_data_is_told_from_what_looks_like_it(text: str, redacted: str) -> None:
    assert texts.redact(text).text == redacted


def test_no_id_is_taken_for_personal_data() -> None:
    ids = [str(uuid4()) for _ in range(2000)]
    assert [one for one in ids if texts.redact(one).hidden] == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (SAMPLES[0].text, "en"),
        (SAMPLES[1].text, "de"),
        (SAMPLES[2].text, "fr"),
        ("El contrato es para los dos años que vienen, y no se puede cambiar.", "es"),
        ("xyzzy 123", "und"),
    ],
)
def test_the_language_is_guessed(text: str, language: str) -> None:
    assert texts.language_of(texts.words_of(text)) == language
