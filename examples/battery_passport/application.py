"""The application object: `windlass worker examples.battery_passport.application:jobs`.

The store is WINDLASS_STORE; where that is not SQL, WINDLASS_OUTBOX names the database of the
application's own tables.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from examples.battery_passport.database import Database
from examples.battery_passport.rules import current_package
from examples.battery_passport.steps import Rules, run_rule_tests, steps
from windlass import Windlass
from windlass.contract.store import JobStore
from windlass.webhooks import WebhookSettings
from windlass.worker.executor import RunHook


@asynccontextmanager
async def open_database(jobs: Windlass) -> AsyncIterator[Database]:
    """What workers open before they work: the tables, and rules that have passed their tests."""
    database = Database(jobs)
    await database.create_tables()
    await run_rule_tests.submit(Rules(current_package().rules_id))
    yield database


def make_jobs(
    store: str | JobStore | None = None,
    *,
    outbox: str | None = None,
    hooks: Iterable[RunHook] = (),
    webhooks: WebhookSettings | None = None,
) -> Windlass:
    """What is not named here, the settings say."""
    return Windlass(
        store,
        outbox=outbox,
        include=[steps],
        lifespan=open_database,
        hooks=hooks,
        webhooks=webhooks,
    )


jobs = make_jobs()
