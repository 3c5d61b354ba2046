"""Data torture: what breaks other stores, in payload, result, error, names and progress."""

from typing import Any

import msgspec

from gantline.contract.classify import classify
from gantline.contract.codec import codec_for, encode_result
from gantline.contract.errors import (
    Code,
    InvalidInput,
    InvalidPayload,
    PayloadTooLarge,
    ResultNotStorable,
)
from gantline.contract.job import Job
from gantline.contract.outcome import ErrorInfo, Failure, Success
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import Progress
from gantline.contract.status import JobStatus
from gantline.contract.submission import DedupeKey, KeyKind
from gantline.contract.text import ERROR_DETAIL_LIMIT, ERROR_MESSAGE_LIMIT
from gantline.manager.manager import Ending, Submitted
from gantline.manager.submitter import Submission
from gantline.testing.conformance.bench import HOUR, Bench
from gantline.testing.conformance.rule import rule, rule_for
from gantline.testing.factories import make_job


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# Data that JSON can say: it must come back bit for bit.
SOUND: dict[str, Any] = {
    "NUL": {"text": "a\x00b", "\x00": 1},
    "2^63": [2**63, -(2**63), 2**64, 2**53 + 1, 10**30],
    "floats": [0.1, 1e308, 5e-324, -0.0],
    "emoji and friends": {"é": "𝄞\u2028\ufeff\U0010ffff", "": "empty key"},
    "deep": _nested(60),
    "odd": ["'; DROP TABLE job; --", "\\", '"', "%s", "{0}", "\r\n\t", "\x7f"],
    "nothing": None,
    "wide": {str(n): n for n in range(1000)},
}
# What JSON cannot say, or what we refuse to keep.
UNSOUND: dict[str, Any] = {
    "lone surrogate": "a\ud800b",
    "NaN": {"x": float("nan")},
    "infinity": [float("inf")],
    "bytes": {"x": b"abc"},
    "too deep": _nested(200),
    "much too deep": _nested(100_000),
    "a set of objects": {object()},
    "too large": "x" * 70_000,
}
NAMES = ("ünïcödé", "with space", "semi;colon'", '"quoted"', "100%_", "a/b/c", "𝄞", "-", "NULL")


@rule_for(SOUND)
async def sound_data_survives_as_payload_and_result(bench: Bench, case: str) -> None:
    data = SOUND[case]
    run = await bench.start(data)
    assert msgspec.json.encode(run.job.data()) == msgspec.json.encode(data)
    await bench.finish(run, Success(*encode_result(data, codec_for(Any))))
    job = await bench.snapshot(run.job.job_id)
    assert job.job.data() == data
    assert job.last is not None
    kept = job.last.result
    assert kept is None if data is None else kept == msgspec.json.encode(data)


@rule_for(UNSOUND)
async def unsound_data_is_refused_at_submit(bench: Bench, case: str) -> None:
    expected = PayloadTooLarge if case == "too large" else InvalidPayload
    refused: InvalidInput | None = None
    try:
        make_job(UNSOUND[case])
    except InvalidInput as error:
        refused = error
    assert type(refused) is expected, f"{case} was accepted"


@rule_for(UNSOUND)
async def an_unsound_result_fails_the_job_for_good(bench: Bench, case: str) -> None:
    run = await bench.start()
    try:
        encode_result(UNSOUND[case], codec_for(Any))
    except ResultNotStorable as error:
        await bench.finish(run, classify(error))
    job = await bench.snapshot(run.job.job_id)
    assert job.status is JobStatus.FAILED
    assert job.last is not None
    assert job.last.result is None
    assert job.last.error is not None
    assert job.last.error.code == Code.RESULT_NOT_STORABLE


RAW = {
    "lone surrogate": b'"\\ud800"',
    "NaN": b"NaN",
    "not JSON": b"{",
    "two values": b"1 2",
    "bad UTF-8": b'"\xff"',
    "deep": b"[" * 5000 + b"]" * 5000,
    "empty": b"",
}


@rule_for(RAW)
async def a_raw_payload_that_is_no_json_is_refused(bench: Bench, case: str) -> None:
    job = Job(job_type="test", payload=msgspec.Raw(RAW[case]))
    good = make_job(1)
    answers = await bench.manager.submit([Submission(job), Submission(good)])
    assert isinstance(answers[0], InvalidInput)
    assert answers[1] == Submitted(good.job_id)
    assert (await bench.recount())["Queued"] == 1


ERRORS = {
    "NUL": "a\x00b",
    "lone surrogate": "a\udfffb",
    "1 MB": "x" * 1_000_000,
    "emoji": "𝄞" * 10,
    "empty": "",
    "control": "\x01\x1b[31m\r\n",
}


@rule_for(ERRORS)
async def any_error_text_can_end_a_job(bench: Bench, case: str) -> None:
    text = ERRORS[case]
    run = await bench.start()
    await bench.finish(run, Failure(ErrorInfo(text, text, text), retryable=False))
    job = await bench.snapshot(run.job.job_id)
    assert job.status is JobStatus.FAILED
    assert job.last is not None
    error = job.last.error
    assert error is not None
    assert len(error.message) <= ERROR_MESSAGE_LIMIT
    assert len(error.detail) <= ERROR_DETAIL_LIMIT
    assert error == ErrorInfo(text, text, text)


@rule_for(NAMES)
async def odd_names_are_just_names(bench: Bench, name: str) -> None:
    job = make_job(
        1,
        job_type=name,
        queue=name,
        tenant_id=name,
        subject_id=name,
        correlation_id=name,
        idempotency_key=name,
        created_by=name,
    )
    answers = await bench.manager.submit([Submission(job)])
    assert answers == [Submitted(job.job_id)]
    run = (await bench.claim(name, queue=name, session=name))[0]
    assert run.job == job
    await bench.store.progress([Progress(run.ref, 33.3, name)])
    job_filter = JobFilter(tenant_id=name, subject_id=name, job_types=frozenset({name}))
    page = await bench.store.find(job_filter, limit=5)
    assert [found.job for found in page.items] == [job]
    await bench.finish(run)


@rule
async def progress_is_brought_into_its_bounds(bench: Bench) -> None:
    run = await bench.start()
    for given, kept in ((-5.0, 0.0), (250.0, 100.0), (float("nan"), 0.0), (float("inf"), 100.0)):
        await bench.manager.progress([Progress(run.ref, given, "p\x00\ud800" + "x" * 1000)])
        current = (await bench.snapshot(run.job.job_id)).run
        assert current is not None
        assert current.percent == kept
        assert len(current.phase) <= 256


@rule
async def a_run_that_wants_to_write_what_cannot_be_stored_fails_alone(bench: Bench) -> None:
    await bench.submit_many(2)
    bad, good = await bench.claim()
    mark = DedupeKey(KeyKind.ONCE, "default", "test", "lone \ud800", b"", HOUR)
    endings = [Ending(bad, Success(once=(mark,))), Ending(good, Success())]
    settled = await bench.manager.settle(endings)
    assert settled[1].accepted
    assert await bench.status(good.job.job_id) is JobStatus.COMPLETED
    # A store that can keep it may complete the job; none may leave it running.
    assert (await bench.status(bad.job.job_id)).is_terminal
