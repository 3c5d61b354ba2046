"""Every name that monitoring systems see: metrics with their labels, and attributes of spans."""

from typing import Final, Literal, NamedTuple

OTHER: Final = "other"
"""The label of all types and queues that this process does not know, so that labels stay few."""

BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0),
)
"""The upper bounds of the histograms' buckets, in seconds."""


class Metric(NamedTuple):
    """A family of time series."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


SUBMITTED: Final = Metric(
    "gantline_jobs_submitted_total",
    "counter",
    ("job_type",),
    "Jobs that this process has stored; duplicates are not counted.",
)
FINISHED: Final = Metric(
    "gantline_jobs_finished_total",
    "counter",
    ("job_type", "status"),
    "Jobs that this process has brought to their end, by final status.",
)
RETRIES: Final = Metric(
    "gantline_retries_total",
    "counter",
    ("job_type",),
    "Failed runs after which the job was queued again.",
)
LEASES_LOST: Final = Metric(
    "gantline_leases_lost_total",
    "counter",
    ("job_type",),
    "Runs that were taken away from a worker that had stopped renewing its lease.",
)
WEBHOOK_DELIVERIES: Final = Metric(
    "gantline_webhook_deliveries_total",
    "counter",
    ("outcome",),
    "Attempts of this process to deliver webhooks: delivered, retried (to come again), failed.",
)
WAIT: Final = Metric(
    "gantline_job_wait_seconds",
    "histogram",
    ("job_type",),
    "How long jobs had been due when this process claimed them, by the store's clock.",
)
RUN: Final = Metric(
    "gantline_job_run_seconds",
    "histogram",
    ("job_type",),
    "How long the handlers of this process ran.",
)
SCHEDULE_LATENESS: Final = Metric(
    "gantline_schedule_lateness_seconds",
    "histogram",
    ("job_type",),
    "How long after they were due this process has submitted the jobs of schedules.",
)
BRIDGED: Final = Metric(
    "gantline_bridge_messages_total",
    "counter",
    ("outcome",),
    "Messages that this process's bridge has taken: accepted, duplicate or rejected.",
)
SLOTS: Final = Metric(
    "gantline_worker_slots",
    "gauge",
    ("queue", "state"),
    "Runs that this process may have at once: busy and free.",
)
LOOP_LAG: Final = Metric(
    "gantline_loop_lag_seconds",
    "gauge",
    (),
    "How long the event loop of this process took to answer when last asked.",
)
STORE_UP: Final = Metric(
    "gantline_store_up",
    "gauge",
    (),
    "Whether the store could be counted: 1 or 0.",
)
DEPTH: Final = Metric(
    "gantline_queue_depth",
    "gauge",
    ("queue", "job_type"),
    "Queued jobs, those that are not due yet included.",
)
SCHEDULED: Final = Metric(
    "gantline_queue_scheduled",
    "gauge",
    ("queue", "job_type"),
    "Queued jobs that are not due yet.",
)
RUNNING: Final = Metric(
    "gantline_queue_running",
    "gauge",
    ("queue", "job_type"),
    "Running jobs.",
)
OLDEST: Final = Metric(
    "gantline_queue_oldest_age_seconds",
    "gauge",
    ("queue", "job_type"),
    "How long the job that has waited longest has been due; 0 where none is due.",
)
DEAD: Final = Metric(
    "gantline_dead_letters",
    "gauge",
    ("queue", "job_type", "status"),
    "Failed and Poisoned jobs that are still kept.",
)
CONSUMER_LAG: Final = Metric(
    "gantline_consumer_lag_events",
    "gauge",
    ("consumer",),
    "Events that a durable consumer has still to read; they hold back retention.",
)
RETENTION_LAG: Final = Metric(
    "gantline_retention_lag_seconds",
    "gauge",
    (),
    "How long the oldest ended job has been past its retention; 0 where none is.",
)
PROCESS_UP: Final = Metric(
    "gantline_process_up",
    "gauge",
    ("process",),
    "Whether a worker process of this supervisor answers: 1 or 0.",
)

OF_THE_STORE: Final = (
    STORE_UP,
    DEPTH,
    SCHEDULED,
    RUNNING,
    OLDEST,
    DEAD,
    CONSUMER_LAG,
    RETENTION_LAG,
)
"""The same in every process that uses the store: take the maximum, never the sum."""

OF_A_PROCESS: Final = (
    SUBMITTED,
    FINISHED,
    RETRIES,
    LEASES_LOST,
    WEBHOOK_DELIVERIES,
    WAIT,
    RUN,
    SCHEDULE_LATENESS,
    BRIDGED,
    SLOTS,
    LOOP_LAG,
    PROCESS_UP,
)

METRICS: Final = OF_A_PROCESS + OF_THE_STORE


class Attribute:
    """What our spans say; the conventions of OpenTelemetry for messaging, and a few of our own."""

    SYSTEM: Final = "messaging.system"
    OPERATION_NAME: Final = "messaging.operation.name"
    OPERATION_TYPE: Final = "messaging.operation.type"
    DESTINATION: Final = "messaging.destination.name"
    MESSAGE_ID: Final = "messaging.message.id"
    CONVERSATION_ID: Final = "messaging.message.conversation_id"
    BATCH_COUNT: Final = "messaging.batch.message_count"
    ERROR_TYPE: Final = "error.type"
    QUEUE: Final = "gantline.queue"
    TENANT: Final = "gantline.tenant_id"
    ATTEMPT: Final = "gantline.attempt"
    OUTCOME: Final = "gantline.outcome"


SYSTEM: Final = "gantline"
SEND: Final = "send"
PROCESS: Final = "process"
