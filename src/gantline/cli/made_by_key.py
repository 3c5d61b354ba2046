"""What an API key has made, and what goes on without it: keys, schedules, their jobs, webhooks."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from uuid import UUID

from gantline.api.searching import find_each
from gantline.auth.action import Action
from gantline.auth.api_key import KIND, ApiKey, KeyState
from gantline.auth.api_keys import ApiKeys
from gantline.auth.peppers import Peppers
from gantline.cli.store_webhooks import StoreHome
from gantline.contract.query import JobFilter
from gantline.contract.status import JobStatus
from gantline.contract.store import JobStore
from gantline.contract.wakeup import Hint
from gantline.contract.webhook import WebhookStatus
from gantline.manager.manager import JobManager
from gantline.schedules.schedule import correlation_of
from gantline.schedules.schedules import Schedules, all_schedules, tenant_prefix
from gantline.webhooks.endpoints import Endpoints
from gantline.webhooks.secret_encryption import Vault
from gantline.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from gantline.cli.session import Cli

_LIVING: Final = frozenset({JobStatus.QUEUED, JobStatus.RUNNING})
_AT_ONCE: Final = 200


class Made(NamedTuple):
    """One thing that a key has made."""

    kind: Literal["key", "schedule", "webhook", "job"]
    name: str
    tenant_id: str
    state: str
    is_active: bool


class MadeByKey:
    """Finds it by who is recorded as its owner or maker; also what a key did that the key made."""

    def __init__(self, cli: "Cli", store: JobStore) -> None:
        self._cli = cli
        self._store = store
        self._manager = JobManager(store)
        self._keys = ApiKeys(store, Peppers.random(), clock=cli.clock)
        self._schedules = Schedules(store, self._manager)
        # To look at endpoints and to disable them, no key for their secrets is needed.
        settings = WebhookSettings(vault=Vault(Peppers.random()))
        self._webhooks = Endpoints(StoreHome(cli, store, self._manager), settings)

    async def find(self, key: ApiKey) -> list[Made]:
        """Find all of it, whether it goes on or not."""
        keys = [key, *await self._find_keys(key)]
        return [*await self._find_lasting(keys), *await self._find_jobs(keys)]

    async def disable(self, key: ApiKey) -> list[Made]:
        """Revoke, pause, disable and cancel what goes on; return all as it is then.

        Each in this order: what a key or a schedule can still make is looked for after it.
        """
        made_keys = await self._find_keys(key)
        keys = [key, *made_keys]
        for one in made_keys:
            if one.state is KeyState.ACTIVE:
                await self._revoke(one)
        for made in await self._find_schedules(keys):
            if made.is_active:
                await self._pause(made)
        for made in await self._find_webhooks(keys):
            if made.is_active:
                await self._disable(made)
        jobs = await self._find_jobs(keys)
        for start in range(0, len(jobs), _AT_ONCE):
            await self._cancel(jobs[start : start + _AT_ONCE])
        await self._cli.hint(self._store, Hint.SCHEDULED)
        await self._cli.hint(self._store, Hint.CANCEL)
        keys = [key, *await self._find_keys(key)]
        cancelled = [one._replace(state="cancelled", is_active=False) for one in jobs]
        return [*await self._find_lasting(keys), *cancelled]

    # -- finding ----------------------------------------------------------------------------------

    async def _find_lasting(self, keys: Sequence[ApiKey]) -> list[Made]:
        """All but jobs."""
        return [
            *map(_made_key, keys[1:]),
            *await self._find_schedules(keys),
            *await self._find_webhooks(keys),
        ]

    async def _find_keys(self, key: ApiKey) -> list[ApiKey]:
        """The keys that it made, and those that they made."""
        every = await self._keys.listed(tenant_id=_tenant_of([key]))
        found: list[ApiKey] = []
        makers = _actors([key])
        while new := [one for one in every if one.created_by in makers and one not in found]:
            found += new
            makers = _actors(new)
        return found

    async def _find_schedules(self, keys: Sequence[ApiKey]) -> list[Made]:
        tenant_id, owners = _tenant_of(keys), _actors(keys)
        prefix = "" if tenant_id is None else tenant_prefix(tenant_id)
        return [
            Made(
                "schedule",
                stored.record.schedule.name,
                stored.record.schedule.tenant_id,
                "paused" if stored.record.paused else "active",
                not stored.record.paused,
            )
            async for stored in all_schedules(self._store, prefix=prefix)
            if stored.record.schedule.owner in owners
        ]

    async def _find_webhooks(self, keys: Sequence[ApiKey]) -> list[Made]:
        found = await self._webhooks.made_by(_actors(keys), tenant_id=_tenant_of(keys))
        return [
            Made(
                "webhook",
                str(one.webhook_id),
                one.tenant_id,
                one.status.value,
                one.status is WebhookStatus.ENABLED,
            )
            for one in found
        ]

    async def _find_jobs(self, keys: Sequence[ApiKey]) -> list[Made]:
        """The jobs of its schedules that have not ended, also of those that are gone."""
        tenant_id = _tenant_of(keys)
        return [
            Made("job", str(job.job.job_id), job.job.tenant_id, job.status.value, True)
            for owner in sorted(_actors(keys))
            async for job in find_each(
                self._store, JobFilter(tenant_id=tenant_id, statuses=_LIVING, created_by=owner)
            )
            if job.job.correlation_id.startswith(correlation_of(""))
        ]

    # -- disabling --------------------------------------------------------------------------------

    async def _revoke(self, key: ApiKey) -> None:
        tenant_id, what = key.grant.tenant_id, f"{KIND}:{key.id}"
        audit = self._cli.audit(self._store, tenant_id)
        await audit.done("revokeKey", Action.MANAGE_KEYS, what, {"name": key.grant.name})
        await self._keys.revoke(key.id, tenant_id=tenant_id)

    async def _pause(self, made: Made) -> None:
        audit = self._cli.audit(self._store, made.tenant_id)
        await audit.done("pauseSchedule", Action.MANAGE_SCHEDULES, f"schedule:{made.name}")
        await self._schedules.pause(made.tenant_id, made.name)

    async def _disable(self, made: Made) -> None:
        audit = self._cli.audit(self._store, made.tenant_id)
        await audit.done("disableWebhook", Action.MANAGE_WEBHOOKS, f"webhook:{made.name}")
        reason = f"Disabled by {self._cli.actor}, with the key that made it."
        await self._webhooks.disable(UUID(made.name), tenant_id=made.tenant_id, reason=reason)

    async def _cancel(self, jobs: Sequence[Made]) -> None:
        for tenant_id in sorted({one.tenant_id for one in jobs}):
            ids = [UUID(one.name) for one in jobs if one.tenant_id == tenant_id]
            await self._cli.audit(self._store, tenant_id).jobs("cancelJob", Action.CANCEL, ids)
            await self._manager.cancel(ids, tenant_id=tenant_id, actor=self._cli.actor)


def _made_key(key: ApiKey) -> Made:
    is_active = key.state is KeyState.ACTIVE
    return Made("key", key.id, key.grant.tenant_id, key.state.value, is_active)


def _actors(keys: Collection[ApiKey]) -> set[str]:
    return {f"{KIND}:{key.id}" for key in keys}


def _tenant_of(keys: Sequence[ApiKey]) -> str | None:
    """Where they can have made something; None where that is everywhere."""
    tenants = {key.grant.tenant_id for key in keys}
    is_anywhere = len(tenants) > 1 or any(key.grant.is_system for key in keys)
    return None if is_anywhere else tenants.pop()
