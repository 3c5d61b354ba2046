"""docs/seeds.md and the guides for its readers: what they name is there."""

import ast
import asyncio
import importlib.util
import re
import shlex
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import psycopg
import pytest

from gantline import Gantline
from gantline.app.settings import SETTINGS
from scripts.docs.reference.command_line import commands
from tests.servers.postgres import PostgresServer
from tests.test_documentation import REPOSITORY, blocks, page

SOURCE: Final = REPOSITORY / "src" / "gantline"
COMING: Final = "coming"
PENDING: Final = "PENDING: "
CELL: Final = re.compile(r"(?<!\\) \| ")
CODE: Final = re.compile(r"`([^`]+)`")
FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


class Row(NamedTuple):
    """One statement of a document."""

    document: str
    section: str
    asked_for: str
    place: str
    shown_by: str

    @property
    def named(self) -> list[str]:
        """Tests, commands and settings."""
        return CODE.findall(self.shown_by.partition(PENDING)[0])

    @property
    def pending(self) -> str:
        """What is still being built; empty where the row is finished."""
        return self.shown_by.partition(PENDING)[2]


def rows_of(text: str) -> list[Row]:
    found = []
    document = section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ")
        elif line.startswith("### "):
            section = line.removeprefix("### ")
        elif section and line.startswith("| ") and not line.startswith("| asked for |"):
            asked_for, place, shown_by = CELL.split(line.removeprefix("| ").removesuffix(" |"))
            found.append(Row(document, section, asked_for, place, shown_by))
    return found


TEXT: Final = page("seeds.md")
ROWS: Final = rows_of(TEXT)


def file_of(name: str) -> Path:
    """A place is below the package, unless the repository has it elsewhere."""
    return SOURCE / name if (SOURCE / name).exists() else REPOSITORY / name


@cache
def functions_of(file: Path) -> frozenset[str]:
    """What pytest finds in a file; of the conformance suite its rules."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(one).partition("(")[0] for one in node.decorator_list}
            if node.name.startswith("test_") or decorators & {"rule", "rule_for"}:
                found.add(node.name)
    return frozenset(found)


def fault_of(shown_by: str) -> str:
    """What is wrong with one test or command that a row names; empty where it is there."""
    file, is_test, name = shown_by.partition("::")
    if is_test:
        path = file_of(file)
        if not path.is_file():
            return f"{file} is gone"
        return "" if name in functions_of(path) else f"{file} has no {name}"
    if re.fullmatch(r"GANTLINE_\w+", shown_by):
        return "" if shown_by in {one.variable for one in SETTINGS} else f"no setting {shown_by}"
    return fault_of_command(shlex.split(shown_by))


def fault_of_command(words: list[str]) -> str:
    match words:
        case ["gantline", *rest]:
            names = [word for word in rest if not word.startswith("-")]
            command = dict(commands()).get(tuple(names))
            if command is None:
                return f"no command {shlex.join(words)}"
            options = {option for one in command.params for option in one.opts}
            unknown = {word for word in rest if word.startswith("-")} - options
            return f"{shlex.join(words)}: no {', '.join(unknown)}" if unknown else ""
        case ["make", target]:
            makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
            return (
                "" if re.search(rf"^{target}:", makefile, re.MULTILINE) else f"no target {target}"
            )
        case ["python", "-m", module]:
            return "" if importlib.util.find_spec(module) else f"no module {module}"
    return f"{shlex.join(words)} is neither a test nor a command"


def faults_of(row: Row) -> list[str]:
    places = CODE.findall(row.place)
    gone = [f"{place} is gone" for place in places if not file_of(place).exists()]
    return gone + [fault for one in row.named if (fault := fault_of(one))]


def test_every_file_test_command_and_setting_is_there() -> None:
    faults = {row.asked_for: faults for row in ROWS if (faults := faults_of(row))}
    assert faults == {}


def test_what_is_gone_is_noticed() -> None:
    sound = "| a | `contract/job.py` | `tests/test_seeds_page.py::test_what_is_gone_is_noticed` |"
    gone = [
        sound.replace("contract/job.py", "contract/jobs.py"),
        sound.replace("is_noticed", "was_noticed"),
        sound.replace("tests/test_seeds_page.py", "tests/test_nothing.py"),
        "| b | `contract/job.py` | `testing/conformance/bench.py::claim` |",
        "| c | `contract/job.py` | `gantline dead revive` |",
        "| d | `contract/job.py` | `gantline dead redrive --everything` |",
        "| e | `contract/job.py` | `GANTLINE_NOTHING` |",
        "| f | `contract/job.py` | `make nothing` |",
        "| g | `contract/job.py` | `python -m benchmark` |",
        "| h | `contract/job.py` | `ls` |",
    ]
    for line, faults in [(sound, 0), *((line, 1) for line in gone)]:
        (row,) = rows_of("### x\n" + line)
        assert len(faults_of(row)) == faults, line


def test_every_row_says_where_and_by_what() -> None:
    for row in ROWS:
        is_coming = row.shown_by == COMING
        assert is_coming or row.pending or (CODE.findall(row.place) and row.named), row
    of_section = Counter((row.document, row.section, row.asked_for) for row in ROWS)
    assert [name for name, count in of_section.items() if count > 1] == []


def test_the_numbers_are_those_of_the_rows() -> None:
    told = re.findall(r"^\| \[(.+)\]\(#.+\) \| .+ \| (\d+) \| (\d+) \|$", TEXT, re.MULTILINE)
    rows = Counter(row.document for row in ROWS)
    coming = Counter(row.document for row in ROWS if row.shown_by == COMING)
    assert {name: (int(all_of), int(later)) for name, all_of, later in told} == {
        name: (rows[name], coming[name]) for name in rows
    }
    assert sum(rows.values()) > 400


def test_nothing_is_pending() -> None:
    """A skip, which CI takes for a failure, until the rows name what was built."""
    pending = [f"{row.asked_for}: {row.pending}" for row in ROWS if row.pending]
    for guide in NAMES:
        found = re.findall(rf"<!-- {PENDING}(.+?) -->", page(f"coming-from/{guide}.md"))
        pending += [f"{guide}: {what}" for what in found]
    if pending:
        pytest.skip(f"{len(pending)} are pending:\n" + "\n".join(pending))


NAMES: Final = {
    "asyncendpoints": {
        "JobManagerConfiguration": "DefaultMaxRetries RetryDelayBaseSeconds JobClaimTimeout "
        "MaxConcurrentJobs JobPollingIntervalMs MaxClaimBatchSize StaleJobClaimCheckInterval",
        "RedisJobStoreOptions": "ConnectionString JobsKeyPrefix RetryCount",
        "EFCoreJobStoreOptions": "ConnectionString TableName AutoCreateTables",
        "IRetryStrategy": "CalculateDelay ShouldRetry",
        "ISchedulingStrategy": "GetDueJobs",
        "registering": "AddRedisJobStore AddEFCoreJobStore AddInMemoryJobStore",
        "statuses": "Queued Scheduled InProgress Completed Failed Canceled",
        "IJobStore": "CreateJob GetJobById UpdateJob UpdateJobStatus UpdateJobResult "
        "UpdateJobException ClaimJobsForWorker GetJobsByStatus GetDueScheduledJobs "
        "ReleaseJobToPool DeleteJob GetJobStatistics CleanupCompletedJobs",
        "IJobManager": "SubmitJob ClaimJobsForProcessing ProcessJobSuccess ProcessJobFailure "
        "ProcessJobCancellation ProcessScheduledJobs ProcessStaleJobClaims CancelJob",
        "JobStatistics": "QueuedCount InProgressCount CompletedCount FailedCount ScheduledCount "
        "CanceledCount",
        "fields": "RetryCount MaxRetries RetryDelayUntil WorkerId Result Exception CreatedAt "
        "LastUpdatedAt",
        "errors": "JOB_NOT_FOUND",
    },
    "bpc-worker": {
        "variables": "BPC_QUEUE_ENABLED BPC_JOBS_POLL_INTERVAL_MS BPC_JOBS_LEASE_SECONDS "
        "BPC_JOBS_LEASE_RENEW_SECONDS BPC_HEALTH_REQUIRE_QUEUE",
        "jobs": "job_id tenant_id type status payload attempts max_attempts priority scheduled_at "
        "lease_owner lease_expires_at started_at last_error",
        "statuses": "QUEUED RUNNING SUCCEEDED FAILED DEAD_LETTER",
        "errors": "DB_UNAVAILABLE QUEUE_UNAVAILABLE HttpException WebhookTimeout WebhookNon2xx "
        "SNAPSHOT_NOT_READY RULE_PKG_NOT_PUBLISHED VALIDATION_ERROR RULE_TYPE_ERROR "
        "PAYLOAD_TOO_LARGE SIGNING_KEY_MISSING",
        "types": "PARSE_FACTS COMPILE_PASSPORT SIGN_PASSPORT GENERATE_QR DELIVER_WEBHOOK",
        "trigger": "bpc jobs.trigger",
        "headers": "X-BPC-Signature X-BPC-Event-Type X-BPC-Delivery-Id",
        "body": "event_id event_type aggregate_type aggregate_id occurred_at payload",
        "webhook_deliveries": "webhook_delivery_id webhook_endpoint_id http_status "
        "response_headers response_body delivered_at error_message created_at "
        "PENDING DELIVERED",
        "endpoints": "/v1/health/ready",
    },
    "spaarke": {
        "envelope": "jobId jobType subjectId correlationId idempotencyKey attempt maxAttempts "
        "payload createdAt",
        "processor": "MaxConcurrentCalls AutoCompleteMessages MaxAutoLockRenewalDuration "
        "ProcessMessageAsync ProcessErrorAsync CompleteMessageAsync DeadLetterMessageAsync",
        "message": "MessageId CorrelationId ContentType Subject JobType Attempt",
        "code": "IJobHandler JobOutcome JobSubmissionService ServiceBusJobProcessor NoHandler "
        "processing_error",
        "statuses": "Queued Running Completed Failed Poisoned Cancelled",
        "status": "status startedAt completedAt errorCode errorMessage",
        "endpoints": "/api/analysis/enqueue /api/jobs/{jobId}/status",
    },
}


def code_of(text: str) -> str:
    """What is set as code, in lines and in blocks."""
    return " ".join([*FENCED.findall(text), *CODE.findall(FENCED.sub("", text))])


def is_in(code: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", code) is not None


@pytest.mark.parametrize("guide", NAMES)
def test_a_guide_maps_every_name_of_its_seed(guide: str) -> None:
    code = code_of(page(f"coming-from/{guide}.md"))
    missing = {
        group: absent
        for group, names in NAMES[guide].items()
        if (absent := [name for name in names.split() if not is_in(code, name)])
    }
    assert missing == {}


def test_an_endpoint_of_the_bpc_worker_is_made_as_its_guide_says() -> None:
    (block,) = blocks(page("coming-from/bpc-worker.md"), "bash")
    gantline, webhook, add, *rest = shlex.split(block.replace("\\\n", ""))
    assert (gantline, webhook, add) == ("gantline", "webhook", "add")
    given = dict(commands())["webhook", "add"].make_context(add, rest).params
    assert (given["format"], given["header_prefix"]) == ("bpc", "X-BPC")
    assert [wait.total_seconds() for wait in given["waits"]] == [2, 4, 8, 16]


def test_the_jobs_of_the_bpc_worker_are_moved_as_its_guide_says(postgres: PostgresServer) -> None:
    """The table is the one of its research document."""
    (move,) = blocks(page("coming-from/bpc-worker.md"), "sql")
    name = f"d{uuid4().hex}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    moved, again = asyncio.run(_moved(postgres.url(database=name), move))
    assert moved == {"accepted": 3}
    assert again == {"duplicate": 3}


OLD_JOBS: Final = """
CREATE TABLE public.jobs (
    job_id uuid PRIMARY KEY, tenant_id uuid NOT NULL, type text NOT NULL, status text NOT NULL,
    payload jsonb NOT NULL, attempts int NOT NULL, max_attempts int NOT NULL,
    priority int NOT NULL, scheduled_at timestamptz NOT NULL
);
INSERT INTO public.jobs
SELECT gen_random_uuid(), '00000000-0000-0000-0000-00000000000a', 'SIGN_PASSPORT', status,
       jsonb_build_object('passport_version_id', status), attempts, 5, 1, now()
FROM (VALUES ('QUEUED', 0), ('RUNNING', 2), ('QUEUED', 5), ('SUCCEEDED', 1), ('FAILED', 1))
    AS old (status, attempts);
"""


async def _moved(url: str, move: str) -> list[dict[str, int]]:
    """What became of the jobs, when they were moved twice."""
    jobs = Gantline(url)
    async with jobs, await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def ask(sql: str) -> dict[Any, int]:
            return dict(await (await connection.execute(sql.encode())).fetchall())

        await connection.execute(OLD_JOBS)
        outcomes = [await ask(move) for _ in range(2)]
        attempts = await ask("SELECT job_id, attempts FROM public.jobs")
        found = [job async for job in jobs.find(all_tenants=True)]
        assert {(job.priority, job.job.queue) for job in found} == {(1, "passports")}
        for job in found:
            assert job.job.external_id is not None
            assert job.attempt == min(attempts[job.job.external_id], 4)
    return outcomes
