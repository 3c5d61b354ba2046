"""The line that a worker logs about each run says what happened, and what happens next."""

import logging
import re
from datetime import timedelta
from uuid import uuid4

import pytest

from gantline import Fixed, Gantline
from gantline.contract.outcome import ErrorInfo, Failure, Outcome, Released, Snoozed, Success
from gantline.manager.manager import Ending
from gantline.testing.factories import lane_requests, register_sessions
from gantline.worker.run_log import Reporter

DOWN = ErrorInfo("MAIL_DOWN", "The mail server is away.")


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Success(), "mail ID completed in T"),
        (
            Failure(DOWN),
            "mail ID failed after T, attempt 1/3, next attempt in 4 s: MAIL_DOWN: The ",
        ),
        (
            Failure(DOWN, retry_after=timedelta(seconds=90.4)),
            "mail ID failed after T, attempt 1/3, next attempt in 90 s: MAIL_DOWN: The mail server",
        ),
        (Failure(DOWN, retryable=False), "mail ID failed in T, attempt 1/3: MAIL_DOWN: The mail s"),
        (Snoozed(timedelta(seconds=0.5)), "mail ID snoozed after T, next run in 0.5 s"),
        (Released(), "mail ID released in T"),
    ],
    ids=["completed", "retried", "retried later", "failed", "snoozed", "released"],
)
async def test_a_run_is_logged_with_what_happens_next(
    outcome: Outcome, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gantline.worker")
    jobs = Gantline("memory://")

    @jobs.job("mail", retry=Fixed(every=timedelta(seconds=4), attempts=3, jitter=0))
    async def mail(to: str) -> None: ...

    async with jobs:
        await mail.submit("ada")
        await register_sessions(jobs.store, "test")
        (run,) = await jobs.manager.claim(
            "test", uuid4(), lane_requests("mail"), lease=timedelta(minutes=5)
        )
        Reporter(jobs.clock).ended(run, jobs.manager.decide(Ending(run, outcome)))
    found = re.sub(r"\d+\.\d{3} s", "T", caplog.messages[-1].replace(str(run.job.job_id), "ID"))
    assert found.startswith(line)
