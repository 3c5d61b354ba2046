"""The table of operations: the one source of routes, of the OpenAPI document and its page."""

from typing import Final

from gantline.api import documents, limit_documents, requests
from gantline.api.operation import EventText, Html, Operation, Parts, RequestHeader
from gantline.api.operations.act import Acting
from gantline.api.operations.audit import AuditTrail
from gantline.api.operations.dead import DeadLetters
from gantline.api.operations.documentation import Documentation
from gantline.api.operations.follow import Follow
from gantline.api.operations.job_types import JobTypes
from gantline.api.operations.limits import LimitOperations
from gantline.api.operations.queues import Queues
from gantline.api.operations.read import JobReading
from gantline.api.operations.schedules import ScheduleOperations
from gantline.api.operations.statistics import Statistics
from gantline.api.operations.submit import BatchSent, Submitting
from gantline.api.operations.webhooks import WebhookOperations
from gantline.api.operations.workers import Workers
from gantline.api.problems import ApiCode
from gantline.api.schedule_documents import (
    NewSchedule,
    NextQuery,
    RunsToCome,
    ScheduleDocument,
    ScheduleSent,
    SchedulesPage,
    SchedulesQuery,
)
from gantline.auth.action import Action
from gantline.contract.errors import Code
from gantline.contract.webhook import (
    IssuedWebhook,
    ListedDelivery,
    ReplayReport,
    WebhookDelivery,
    WebhookEndpoint,
)

_IDEMPOTENCY_KEY: Final = RequestHeader(
    "Idempotency-Key",
    "A repeat of the same request with the same key finds the job of the first one; 24 hours.",
    {"type": "string", "minLength": 1, "maxLength": 255},
)
_ASYNC_REQUEST_ID: Final = RequestHeader(
    "X-Async-Request-Id",
    "The external id of the job, as `jobId` in the body is.",
    {"type": "string", "format": "uuid"},
)
_PREFER: Final = RequestHeader(
    "Prefer",
    "`wait=N` holds the answer up to N seconds, at most 30, until the job has ended.",
    {"type": "string"},
)
_IF_NONE_MATCH: Final = RequestHeader(
    "If-None-Match", "Answer 304 while the ETag is still this one.", {"type": "string"}
)
_IF_MATCH: Final = RequestHeader(
    "If-Match", "Act only while the ETag is still this one; else 412.", {"type": "string"}
)
_IF_MATCH_SCHEDULE: Final = RequestHeader(
    "If-Match", "Do it only while the ETag is still this one; else 412.", {"type": "string"}
)
_LAST_EVENT_ID: Final = RequestHeader(
    "Last-Event-ID",
    "Go on after this event; an EventSource sends it by itself. As a parameter: lastEventId.",
    {"type": "string"},
)

_NOT_FOUND: Final = (ApiCode.NOT_FOUND,)
_SUBMIT: Final = (
    ApiCode.NOT_FOUND,
    Code.IDEMPOTENCY_CONFLICT,
    Code.JOB_ID_CONFLICT,
    Code.PAYLOAD_TOO_LARGE,
    ApiCode.UNKNOWN_JOB_TYPE,
    ApiCode.IDEMPOTENCY_KEY_REUSED,
    Code.JOB_TYPE_DISABLED,
    Code.QUEUE_FULL,
    Code.STORE_CLOSED,
)
_JOB: Final = (Code.JOB_NOT_FOUND, ApiCode.JOB_PURGED)
_ACT: Final = (*_JOB, Code.ILLEGAL_TRANSITION, Code.VERSION_MISMATCH, Code.STORE_CLOSED)
_WEBHOOKS: Final = (ApiCode.NOT_FOUND, ApiCode.WEBHOOKS_OFF)
_WEBHOOK: Final = (*_WEBHOOKS, ApiCode.WEBHOOK_NOT_FOUND)
_WEBHOOK_CHANGED: Final = (*_WEBHOOK, Code.VERSION_MISMATCH)
_REPLAY: Final = (*_WEBHOOK, Code.JOB_NOT_FOUND, Code.ILLEGAL_TRANSITION, Code.VERSION_MISMATCH)
_SCHEDULE_SENT: Final = (
    ApiCode.NOT_FOUND,
    Code.SCHEDULE_CONFLICT,
    Code.PAYLOAD_TOO_LARGE,
    ApiCode.UNKNOWN_JOB_TYPE,
    Code.STORE_CLOSED,
)
_SCHEDULE_DELETED: Final = (
    ApiCode.NOT_FOUND,
    Code.SCHEDULE_CONFLICT,
    Code.VERSION_MISMATCH,
    Code.STORE_CLOSED,
)
_SCHEDULE_SWITCHED: Final = (ApiCode.NOT_FOUND, Code.VERSION_MISMATCH, Code.STORE_CLOSED)
_SCHEDULE_RUN: Final = (
    ApiCode.NOT_FOUND,
    Code.JOB_TYPE_DISABLED,
    Code.QUEUE_FULL,
    Code.STORE_CLOSED,
)
_TOKEN: Final = (ApiCode.STREAM_TOKENS_OFF, Code.VALIDATION_ERROR)


def operations_of(parts: Parts) -> list[Operation]:
    """In the order in which they are looked for: what is called most often comes first.

    A row is name, method, path, tag, right; summary; what runs, what it answers, its own problems.
    """
    submitting, reading, acting = Submitting(parts), JobReading(parts), Acting(parts)
    dead, statistics, queues = DeadLetters(parts, reading), Statistics(parts), Queues(parts)
    job_types, webhooks = JobTypes(parts), WebhookOperations(parts)
    limits = LimitOperations(parts)
    schedules, audit, follow = ScheduleOperations(parts), AuditTrail(parts), Follow(parts)
    # By hand, since it is a table: one row would otherwise be a dozen lines.
    # fmt: off
    return [
        Operation("submitJob", "POST", "/api/jobs", "jobs",
            Action.SUBMIT, "Submit a job. It is durable when the answer comes.",
            submitting.submit, {202: documents.AcceptedDocument, 200: documents.StatusDocument},
            _SUBMIT, body=requests.JobToSubmit,
            headers=(_IDEMPOTENCY_KEY, _ASYNC_REQUEST_ID, _PREFER)),
        Operation("submitBatch", "POST", "/api/jobs/batch", "jobs",
            Action.SUBMIT, "Submit many jobs; each is accepted or refused on its own.",
            submitting.batch, {202: documents.BatchDocument}, _SUBMIT,
            body=BatchSent, body_shown=requests.JobsToSubmit, headers=(_IDEMPOTENCY_KEY,),
            is_long=True),
        Operation("getStatus", "GET", "/api/jobs/{job_id}/status", "jobs",
            Action.READ, "Show where a job stands.",
            reading.status, {200: documents.StatusDocument, 304: None}, _JOB,
            headers=(_IF_NONE_MATCH,)),
        Operation("getJob", "GET", "/api/jobs/{job_id}", "jobs",
            Action.READ, "Show all of a job; its payload to those who may read it.",
            reading.job, {200: documents.JobDocument, 304: None}, _JOB,
            headers=(_IF_NONE_MATCH,)),
        Operation("listJobs", "GET", "/api/jobs", "jobs",
            Action.READ, "List jobs, newest first; only those that the caller may see.",
            reading.listed, {200: documents.JobPage}, _NOT_FOUND, query=requests.JobQuery,
            is_long=True),
        Operation("getHistory", "GET", "/api/jobs/{job_id}/history", "jobs",
            Action.READ, "List what happened to a job, oldest first.",
            reading.history, {200: documents.HistoryDocument}, _JOB, is_long=True),
        Operation("getAttempts", "GET", "/api/jobs/{job_id}/attempts", "jobs",
            Action.READ, "List the runs of a job, oldest first; the last may be going on.",
            reading.attempts, {200: documents.AttemptsDocument}, _JOB, is_long=True),
        Operation("whyJob", "GET", "/api/jobs/{job_id}/why", "jobs",
            Action.READ, "Say why a job waits: what hinders it, and what to do.",
            reading.why, {200: documents.WhyDocument}, _JOB, is_long=True),
        Operation("cancelJob", "POST", "/api/jobs/{job_id}/cancel", "jobs",
            Action.CANCEL,
            "Cancel a job: 200 when it is, 202 when its run has been asked to stop.",
            acting.cancel, {200: documents.StatusDocument, 202: documents.StatusDocument}, _ACT,
            headers=(_IF_MATCH,)),
        Operation("redriveJob", "POST", "/api/jobs/{job_id}/redrive", "jobs",
            Action.REDRIVE,
            "Queue a failed, poisoned or cancelled job again, with its id and history.",
            acting.redrive, {200: documents.StatusDocument}, (*_ACT, Code.IDEMPOTENCY_CONFLICT),
            headers=(_IF_MATCH,)),
        Operation("redriveEdited", "POST", "/api/jobs/{job_id}/edited-redrive", "jobs",
            Action.REDRIVE,
            "Submit a new job made of a dead one and what is different; it is checked again.",
            acting.redrive_edited, {202: documents.AcceptedDocument, 200: documents.StatusDocument},
            (*_ACT, *_SUBMIT),
            body=requests.JobEdited, headers=(_IF_MATCH, _IDEMPOTENCY_KEY, _PREFER)),
        Operation("deleteJob", "DELETE", "/api/jobs/{job_id}", "jobs",
            Action.DELETE, "Remove a job that has ended, and all that is known of it.",
            acting.delete, {204: None}, _ACT, headers=(_IF_MATCH,)),

        Operation("summarizeDeadLetters", "GET", "/api/dead-letters/summary", "dead letters",
            Action.STATISTICS, "Count dead letters by type and reason.",
            dead.summary, {200: documents.DeadSummary}, _NOT_FOUND, query=requests.TenantQuery,
            is_long=True),
        Operation("redriveDeadLetters", "POST", "/api/dead-letters/redrive", "dead letters",
            Action.REDRIVE, "Queue the dead letters that match again; a dry run only counts them.",
            dead.redrive, {200: documents.RedriveReport}, (ApiCode.NOT_FOUND, Code.STORE_CLOSED),
            body=requests.RedriveByFilter, is_long=True),
        Operation("listDeadLetters", "GET", "/api/dead-letters", "dead letters",
            Action.READ, "List dead letters, newest first; only those that the caller may see.",
            dead.listed, {200: documents.JobPage}, _NOT_FOUND, query=requests.DeadQuery,
            is_long=True),
        Operation("getDeadLetter", "GET", "/api/dead-letters/{job_id}", "dead letters",
            Action.READ, "Show all of a dead letter.",
            dead.get, {200: documents.JobDocument, 304: None}, _JOB, headers=(_IF_NONE_MATCH,)),

        Operation("getStatistics", "GET", "/api/stats", "statistics",
            Action.STATISTICS, "Count the jobs of a tenant by where they are, in all and by lane.",
            statistics.all, {200: documents.StatisticsDocument}, _NOT_FOUND,
            query=requests.StatisticsQuery, is_long=True),
        Operation("getScale", "GET", "/api/stats/scale", "statistics",
            Action.STATISTICS, "Show how much work there is, for an autoscaler such as KEDA.",
            statistics.scale, {200: documents.ScaleDocument}, _NOT_FOUND,
            query=requests.ScaleQuery, is_long=True),

        Operation("listQueues", "GET", "/api/queues", "queues",
            Action.STATISTICS,
            "List queues with the tenant's jobs in them, and how they are switched.",
            queues.listed, {200: documents.QueuesDocument}, _NOT_FOUND, query=requests.QueuesQuery,
            is_long=True),
        Operation("pauseQueue", "POST", "/api/queues/{queue:path}/pause", "queues",
            Action.MANAGE_QUEUES,
            "Start nothing more out of a queue, for all tenants; what runs goes on.",
            queues.pause, {200: documents.QueueState}, _NOT_FOUND),
        Operation("resumeQueue", "POST", "/api/queues/{queue:path}/resume", "queues",
            Action.MANAGE_QUEUES, "Start jobs out of a queue again.",
            queues.resume, {200: documents.QueueState}, _NOT_FOUND),
        Operation("capQueue", "PUT", "/api/queues/{queue:path}/depth-cap", "queues",
            Action.MANAGE_QUEUES,
            "Refuse new jobs while so many wait in a queue; null takes the cap away.",
            queues.cap, {200: documents.QueueState}, _NOT_FOUND, body=requests.DepthCap),

        Operation("listJobTypes", "GET", "/api/job-types", "job types",
            Action.READ_TYPES,
            "List the types of jobs, with the JSON Schemas of payload and result.",
            job_types.listed, {200: documents.JobTypesDocument}, is_long=True),
        Operation("disableJobType", "POST", "/api/job-types/{job_type:path}/disable", "job types",
            Action.MANAGE_TYPES, "Refuse new jobs of a type, and fail those that would run.",
            job_types.disable, {200: documents.JobTypeState}, _NOT_FOUND),
        Operation("enableJobType", "POST", "/api/job-types/{job_type:path}/enable", "job types",
            Action.MANAGE_TYPES, "Take jobs of a type again.",
            job_types.enable, {200: documents.JobTypeState}, _NOT_FOUND),
        Operation("pauseJobType", "POST", "/api/job-types/{job_type:path}/pause", "job types",
            Action.MANAGE_TYPES, "Start no more jobs of a type; new ones are taken.",
            job_types.pause, {200: documents.JobTypeState}, _NOT_FOUND),
        Operation("resumeJobType", "POST", "/api/job-types/{job_type:path}/resume", "job types",
            Action.MANAGE_TYPES, "Start jobs of a type again.",
            job_types.resume, {200: documents.JobTypeState}, _NOT_FOUND),
        Operation("getJobType", "GET", "/api/job-types/{job_type:path}", "job types",
            Action.READ_TYPES, "Show a type of job.",
            job_types.get, {200: documents.JobTypeDocument}, _NOT_FOUND),

        Operation("listLimits", "GET", "/api/limits", "limits",
            Action.READ_TYPES,
            "List how many jobs of each type may run at once, and how many may start in a time.",
            limits.listed, {200: limit_documents.LimitsDocument}, is_long=True),
        Operation("listGates", "GET", "/api/gates", "limits",
            Action.READ_WORKERS, "List the gates of all rates, and which of them are closed.",
            limits.gates, {200: limit_documents.GatesDocument}, is_long=True),
        Operation("listGroups", "GET", "/api/limits/{job_type:path}/groups", "limits",
            Action.STATISTICS, "List the groups of which jobs of a type wait or run.",
            limits.groups, {200: limit_documents.GroupsPage}, _NOT_FOUND,
            query=limit_documents.GroupsQuery, is_long=True),
        Operation("getLimits", "GET", "/api/limits/{job_type:path}", "limits",
            Action.READ_TYPES, "Show the limits of a type, and where they come from.",
            limits.get, {200: limit_documents.LimitDocument}),
        Operation("setLimits", "PUT", "/api/limits/{job_type:path}", "limits",
            Action.MANAGE_TYPES,
            "Set limits of a type over those that its code declares, for all tenants.",
            limits.set, {200: limit_documents.LimitDocument}, body=limit_documents.LimitsToSet),
        Operation("clearLimits", "DELETE", "/api/limits/{job_type:path}", "limits",
            Action.MANAGE_TYPES, "Let the limits that its code declares hold again.",
            limits.clear, {200: limit_documents.LimitDocument}, query=limit_documents.ClearQuery),

        Operation("listWebhooks", "GET", "/api/webhooks", "webhooks",
            Action.MANAGE_WEBHOOKS, "List the tenant's webhooks, oldest first.",
            webhooks.listed, {200: documents.WebhooksDocument}, _WEBHOOKS,
            query=requests.TenantQuery, is_long=True),
        Operation("createWebhook", "POST", "/api/webhooks", "webhooks",
            Action.MANAGE_WEBHOOKS, "Make a webhook; its secret is shown this once.",
            webhooks.create, {201: IssuedWebhook}, _WEBHOOKS,
            query=requests.TenantQuery, body=requests.WebhookToCreate),
        Operation("getWebhook", "GET", "/api/webhooks/{webhook_id}", "webhooks",
            Action.MANAGE_WEBHOOKS, "Show a webhook, but for its secret.",
            webhooks.get, {200: WebhookEndpoint}, _WEBHOOK, query=requests.TenantQuery),
        Operation("updateWebhook", "PUT", "/api/webhooks/{webhook_id}", "webhooks",
            Action.MANAGE_WEBHOOKS, "Replace what a webhook wants.",
            webhooks.update, {200: WebhookEndpoint}, _WEBHOOK_CHANGED,
            query=requests.TenantQuery, body=requests.WebhookToKeep),
        Operation("deleteWebhook", "DELETE", "/api/webhooks/{webhook_id}", "webhooks",
            Action.MANAGE_WEBHOOKS, "Delete a webhook; what is pending fails.",
            webhooks.delete, {204: None}, _WEBHOOK, query=requests.TenantQuery),
        Operation("rotateWebhook", "POST", "/api/webhooks/{webhook_id}/rotate", "webhooks",
            Action.MANAGE_WEBHOOKS, "Give a webhook a new secret.",
            webhooks.rotate, {200: IssuedWebhook}, _WEBHOOK_CHANGED, query=requests.RotateQuery),
        Operation("enableWebhook", "POST", "/api/webhooks/{webhook_id}/enable", "webhooks",
            Action.MANAGE_WEBHOOKS, "Send events to a webhook again.",
            webhooks.enable, {200: WebhookEndpoint}, _WEBHOOK_CHANGED, query=requests.TenantQuery),
        Operation("disableWebhook", "POST", "/api/webhooks/{webhook_id}/disable", "webhooks",
            Action.MANAGE_WEBHOOKS, "Send no more events to a webhook.",
            webhooks.disable, {200: WebhookEndpoint}, _WEBHOOK_CHANGED, query=requests.TenantQuery),
        Operation("testWebhook", "POST", "/api/webhooks/{webhook_id}/test", "webhooks",
            Action.MANAGE_WEBHOOKS, "Send a webhook a made-up event, once.",
            webhooks.test, {202: ListedDelivery}, _WEBHOOK, query=requests.TenantQuery),
        Operation("replayDeliveries", "POST", "/api/webhooks/{webhook_id}/replay", "webhooks",
            Action.MANAGE_WEBHOOKS,
            "Make the deliveries that match once more; a dry run only counts them.",
            webhooks.replay_all, {200: ReplayReport}, (*_WEBHOOK, Code.ILLEGAL_TRANSITION),
            query=requests.TenantQuery, body=requests.DeliveriesToReplay, is_long=True),
        Operation("listDeliveries", "GET", "/api/webhooks/{webhook_id}/deliveries", "webhooks",
            Action.MANAGE_WEBHOOKS,
            "List what is to be, was and could not be delivered, newest first.",
            webhooks.deliveries, {200: documents.DeliveryPage}, _WEBHOOKS,
            query=requests.DeliveryQuery, is_long=True),
        Operation("getDelivery", "GET",
            "/api/webhooks/{webhook_id}/deliveries/{delivery_id}", "webhooks",
            Action.MANAGE_WEBHOOKS,
            "Show all of a delivery: its body, and what was answered to each attempt.",
            webhooks.delivery, {200: WebhookDelivery}, (*_WEBHOOKS, Code.JOB_NOT_FOUND),
            query=requests.TenantQuery),
        Operation("replayDelivery", "POST",
            "/api/webhooks/{webhook_id}/deliveries/{delivery_id}/replay", "webhooks",
            Action.MANAGE_WEBHOOKS,
            "Make a delivery once more, with the same message id and body.",
            webhooks.replay, {202: ListedDelivery}, _REPLAY, query=requests.TenantQuery),

        Operation("listSchedules", "GET", "/api/schedules", "schedules",
            Action.READ_SCHEDULES,
            "List schedules by name; only those of types that the caller may see.",
            schedules.listed, {200: SchedulesPage}, _NOT_FOUND, query=SchedulesQuery, is_long=True),
        Operation("createSchedule", "POST", "/api/schedules", "schedules",
            Action.MANAGE_SCHEDULES,
            "Make a schedule; its jobs are submitted in the caller's name.",
            schedules.create, {201: ScheduleDocument}, _SCHEDULE_SENT, body=NewSchedule,
            is_long=True),
        Operation("getSchedule", "GET", "/api/schedules/{schedule}", "schedules",
            Action.READ_SCHEDULES, "Show a schedule, its last and its next runs.",
            schedules.get, {200: ScheduleDocument, 304: None}, _NOT_FOUND,
            query=requests.TenantQuery, headers=(_IF_NONE_MATCH,), is_long=True),
        Operation("replaceSchedule", "PUT", "/api/schedules/{schedule}", "schedules",
            Action.MANAGE_SCHEDULES,
            "Change a schedule; its pause stays, and its next run unless times change.",
            schedules.replace, {200: ScheduleDocument},
            (*_SCHEDULE_SENT, Code.VERSION_MISMATCH),
            query=requests.TenantQuery, body=ScheduleSent, headers=(_IF_MATCH_SCHEDULE,),
            is_long=True),
        Operation("deleteSchedule", "DELETE", "/api/schedules/{schedule}", "schedules",
            Action.MANAGE_SCHEDULES, "Remove a schedule; the jobs that it has submitted stay.",
            schedules.delete, {204: None}, _SCHEDULE_DELETED,
            query=requests.TenantQuery, headers=(_IF_MATCH_SCHEDULE,)),
        Operation("pauseSchedule", "POST", "/api/schedules/{schedule}/pause", "schedules",
            Action.MANAGE_SCHEDULES, "Submit nothing more until it is resumed.",
            schedules.pause, {200: ScheduleDocument}, _SCHEDULE_SWITCHED,
            query=requests.TenantQuery, headers=(_IF_MATCH_SCHEDULE,), is_long=True),
        Operation("resumeSchedule", "POST", "/api/schedules/{schedule}/resume", "schedules",
            Action.MANAGE_SCHEDULES, "Go on with the first run from now.",
            schedules.resume, {200: ScheduleDocument}, _SCHEDULE_SWITCHED,
            query=requests.TenantQuery, headers=(_IF_MATCH_SCHEDULE,), is_long=True),
        Operation("runSchedule", "POST", "/api/schedules/{schedule}/run", "schedules",
            Action.MANAGE_SCHEDULES,
            "Submit a job of it now, in the caller's name; its own runs stay.",
            schedules.run_now, {202: documents.AcceptedDocument}, _SCHEDULE_RUN,
            query=requests.TenantQuery),
        Operation("nextRuns", "GET", "/api/schedules/{schedule}/next", "schedules",
            Action.READ_SCHEDULES,
            "List the next runs, in UTC and as clocks in its zone show them.",
            schedules.next_runs, {200: RunsToCome}, _NOT_FOUND, query=NextQuery, is_long=True),

        Operation("listWorkers", "GET", "/api/workers", "workers",
            Action.READ_WORKERS,
            "List the worker processes that live, of all tenants, by session id.",
            Workers(parts).listed, {200: documents.WorkersPage}, query=requests.WorkersQuery,
            is_long=True),

        Operation("listAuditEvents", "GET", "/api/audit", "audit",
            Action.READ_AUDIT,
            "List the audit trail of a tenant, newest first; what is needed to verify it is "
            "with it. A page may be short, or empty, and still have a next one.",
            audit.listed, {200: documents.AuditPage}, _NOT_FOUND, query=requests.AuditQuery,
            is_long=True),

        Operation("followJob", "GET", "/api/jobs/{job_id}/events", "events",
            Action.READ, "Follow a job to its end: how it stands, then its progress and events. "
            "204 when all was heard before.",
            follow.job, {200: EventText, 204: None}, (*_JOB, ApiCode.TOO_MANY_STREAMS),
            query=requests.JobEventsQuery, headers=(_LAST_EVENT_ID,),
            identify=parts.stream_identity.of_job, is_long=True),
        Operation("followJobs", "GET", "/api/events", "events",
            Action.READ,
            "Follow many jobs by one stream: those named, with their progress, or all that "
            "match and may be seen.",
            follow.all, {200: EventText}, (ApiCode.NOT_FOUND, ApiCode.TOO_MANY_STREAMS),
            query=requests.EventsQuery, headers=(_LAST_EVENT_ID,),
            identify=parts.stream_identity.of_all, is_long=True),
        Operation("createJobStreamToken", "POST", "/api/jobs/{job_id}/events/token", "events",
            Action.READ,
            "Make a token with which a browser may follow this job; also as a cookie.",
            follow.job_token, {200: documents.StreamTokenDocument}, (*_JOB, *_TOKEN)),
        Operation("createStreamToken", "POST", "/api/events/token", "events",
            Action.READ,
            "Make a token with which a browser may follow many jobs; also as a cookie.",
            follow.token, {200: documents.StreamTokenDocument}, _TOKEN),
    ]
    # fmt: on


def documentation_operations(documentation: Documentation, *, is_shown: bool) -> list[Operation]:
    """Those for everybody. The problems are always explained, the API only where that is shown."""
    # fmt: off
    problems = [
        Operation("listProblems", "GET", "/api/problems", "documentation",
            None, "List the types of problems.",
            documentation.problems, {200: Html}),
        Operation("getProblem", "GET", "/api/problems/{problem}", "documentation",
            None, "Explain a type of problem.",
            documentation.problem, {200: Html}, _NOT_FOUND),
    ]
    shown = [
        Operation("getOpenApi", "GET", "/api/openapi.json", "documentation",
            None, "This document.",
            documentation.openapi, {200: object}),
        Operation("readDocumentation", "GET", "/api/docs", "documentation",
            None, "This document, to be read.",
            documentation.page, {200: Html}),
    ]
    # fmt: on
    return problems + (shown if is_shown else [])
