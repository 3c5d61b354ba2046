"""How the application is put together, for servers, for the demo and for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from examples.battery_passport.database import Database
from examples.battery_passport.rules import current_package
from examples.battery_passport.steps import Rules, run_rule_tests, steps
from gantline import AuditSettings, Gantline, JobDefaults, JobStore, WorkerSettings
from gantline.webhooks import WebhookSettings

LEASES: Final = WorkerSettings(lease=timedelta(seconds=60), renew_every=timedelta(seconds=30))
"""As the specification has them; GANTLINE_LEASE_SECONDS and GANTLINE_RENEW_SECONDS change them."""


@asynccontextmanager
async def open_database(jobs: Gantline) -> AsyncIterator[Database]:
    """What workers open before they work: the tables, and rules that have passed their tests."""
    database = Database(jobs)
    await database.create_tables()
    await run_rule_tests.submit(Rules(current_package().rules_id))
    yield database


def make_jobs(
    store: str | JobStore | None = None,
    *,
    outbox: str | None = None,
    defaults: JobDefaults | None = None,
    webhooks: WebhookSettings | None = None,
) -> Gantline:
    """What is not named here, the settings say."""
    return Gantline(
        store,
        outbox=outbox,
        include=[steps],
        lifespan=open_database,
        audit=AuditSettings(from_jobs=True),
        defaults=defaults or JobDefaults(),
        worker=LEASES,
        webhooks=webhooks,
    )
