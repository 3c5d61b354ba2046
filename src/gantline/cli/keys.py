"""gantline key: making, listing, rotating and revoking API keys."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import click
import msgspec

from gantline.auth.action import Action
from gantline.auth.api_key import ApiKey, IssuedKey, KeyGrant, KeyState, new_key_id
from gantline.auth.api_keys import MAX_AGE_SECONDS, ApiKeys
from gantline.auth.peppers import Peppers, new_pepper
from gantline.auth.principal import Role
from gantline.auth.rate_limit import read_rate_limit
from gantline.auth.worker_key import is_worker_key_required, require_worker_key
from gantline.cli.command import command, confirm
from gantline.cli.made_by_key import Made, MadeByKey
from gantline.cli.options import span
from gantline.cli.session import Cli, CliAudit
from gantline.cli.store_choice import store_label
from gantline.cli.table import Columns
from gantline.cli.talk import counted, say, write
from gantline.contract.errors import InvalidInput
from gantline.manager.sessions import live_sessions

_COLUMNS: Final = Columns(
    ("keyId", "name", "state", "roles", "isSystem", "createdAt", "expiresAt", "lastUsedAt"),
    expendable=("createdAt", "expiresAt", "lastUsedAt"),
)

_MADE: Final = Columns(("kind", "name", "state", "tenantId"))

_GRANTED: Final = ("tenantId", "roles", "scopes", "subjects", "jobTypes", "isSystem", "rateLimit")


@click.group()
def key() -> None:
    """Create, list, rotate and revoke API keys."""


@key.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, type=click.Choice([*map(str, Role)]))
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([*map(str, Action)]),
    help="Allow only these actions; default: all that the roles allow.",
)
@click.option("--subject", "subjects", multiple=True, help="A subject that the key may see.")
@click.option(
    "--type", "job_types", multiple=True, help="Allow only these job types; default: all."
)
@click.option("--system", is_flag=True, help="Make its roles apply to all tenants.")
@click.option("--rate-limit", help="Such as 50/s or 600/min:100; default: the server's.")
@click.option("--expires-in", type=span, help="Such as 90d; default: never.")
@command
async def create(
    cli: Cli,
    /,
    name: str,
    roles: tuple[str, ...],
    scopes: tuple[str, ...],
    subjects: tuple[str, ...],
    job_types: tuple[str, ...],
    system: bool,
    rate_limit: str | None,
    expires_in: timedelta | None,
) -> None:
    """Create a key for the tenant. Without a role it sees its own jobs and its subjects' jobs."""
    grant = KeyGrant(
        name=name,
        tenant_id=cli.tenant,
        roles=frozenset(map(Role, roles)),
        scopes=frozenset(map(Action, scopes)) if scopes else None,
        subjects=frozenset(subjects),
        job_types=frozenset(job_types) if job_types else None,
        is_system=system,
        rate_limit=None if rate_limit is None else read_rate_limit(rate_limit),
    )
    grant.check()
    peppers = Peppers.from_environment(os.environ)
    async with cli.opened(create=True) as store:
        keys, audit = ApiKeys(store, peppers, clock=cli.clock), cli.audit(store)
        await _warn_of_namesakes(keys, grant)
        key_id = new_key_id()
        await audit.done("createKey", Action.MANAGE_KEYS, f"key:{key_id}", _granted(grant))
        issued = await keys.create(grant, lifetime=expires_in, created_by=cli.actor, key_id=key_id)
        _show_issued(cli, issued)
        say(f"It is registered in the store {store_label(store, cli.choice)}.")


async def _warn_of_namesakes(keys: ApiKeys, grant: KeyGrant) -> None:
    """Names may repeat, but then only the ids say which key is to be revoked."""
    known = await keys.listed(tenant_id=grant.tenant_id)
    active = [one for one in known if one.state is KeyState.ACTIVE]
    others = [one.id for one in active if one.grant.name == grant.name]
    if others:
        say(
            f"Warning: {', '.join(others)} {'has' if len(others) == 1 else 'have'} the name "
            f"{grant.name!r} already. To replace a key, use gantline key rotate."
        )


@key.command(name="list")
@command
async def list_(cli: Cli) -> None:
    """List the tenant's keys, oldest first; revoked and expired ones for 90 days."""
    async with _opened(cli) as (keys, _):
        rows = [_row(one) for one in await keys.listed(tenant_id=cli.tenant)]
        cli.output.rows(rows, _COLUMNS, empty=f"The tenant {cli.tenant!r} has no keys.")


@key.command()
@click.argument("key_id")
@command
async def show(cli: Cli, key_id: str) -> None:
    """Show the rights of a key. Its secret cannot be shown again."""
    async with _opened(cli) as (keys, _):
        cli.output.one(_row(await keys.get(_id_of(key_id), tenant_id=cli.tenant)))


@key.command()
@click.argument("key_id")
@click.option(
    "--overlap",
    type=span,
    default="24h",
    show_default=True,
    help="How long the old secret stays valid.",
)
@click.option("--expires-in", type=span, help="A new expiry, from now; default: unchanged.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def rotate(
    cli: Cli, /, key_id: str, overlap: timedelta, expires_in: timedelta | None, yes: bool
) -> None:
    """Replace the secret of a key."""
    peppers = Peppers.from_environment(os.environ)
    async with _opened(cli, peppers) as (keys, audit):
        old = await keys.get(_id_of(key_id), tenant_id=cli.tenant)
        if not overlap and not yes:
            await confirm(f"end the secret of {old.grant.name!r} ({old.id}) at once")
        details = {"name": old.grant.name, "overlapSeconds": overlap.total_seconds()}
        await audit.done("rotateKey", Action.MANAGE_KEYS, f"key:{old.id}", details)
        issued = await keys.rotate(
            old.id, tenant_id=cli.tenant, overlap=overlap, lifetime=expires_in
        )
        _show_issued(cli, issued)


@key.command()
@click.argument("key_id")
@command
async def made(cli: Cli, key_id: str) -> None:
    """List what a key made: keys, schedules, their jobs that have not ended, webhooks."""
    async with cli.opened() as store:
        keys = ApiKeys(store, Peppers.random(), clock=cli.clock)
        one = await keys.get(_id_of(key_id), tenant_id=cli.tenant)
        rows = [_made_row(each) for each in await MadeByKey(cli, store).find(one)]
        cli.output.rows(rows, _MADE, empty=f"The key {one.grant.name!r} made nothing of that.")


@key.command()
@click.argument("key_id")
@click.option(
    "--disable-made",
    is_flag=True,
    help="Revoke the keys that it made, pause its schedules, cancel their jobs, and disable its "
    "webhooks.",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def revoke(cli: Cli, /, key_id: str, disable_made: bool, yes: bool) -> None:
    """Revoke a key permanently, and list what it made: that goes on unless it is disabled."""
    async with cli.opened() as store:
        keys, makings = ApiKeys(store, Peppers.random(), clock=cli.clock), MadeByKey(cli, store)
        old = await keys.get(_id_of(key_id), tenant_id=cli.tenant)
        if not yes:
            too = " and disable what it made" if disable_made else ""
            await confirm(f"revoke the key {old.grant.name!r} ({old.id}) permanently{too}")
        details = {"name": old.grant.name}
        await cli.audit(store).done("revokeKey", Action.MANAGE_KEYS, f"key:{old.id}", details)
        revoked = await keys.revoke(old.id, tenant_id=cli.tenant)
        found = await (makings.disable(old) if disable_made else makings.find(old))
        cli.output.one_with(_row(revoked), "made", [_made_row(one) for one in found], _MADE)
        say(f"Every server refuses it within {MAX_AGE_SECONDS:g} seconds.")
        _say_what_goes_on(old.id, sum(one.is_active for one in found), was_asked=disable_made)


def _say_what_goes_on(key_id: str, active: int, *, was_asked: bool) -> None:
    if was_asked:
        say(f"Look then whether it has made more meanwhile: gantline key made {key_id}")
    elif active:
        say(
            f"What it made goes on ({active}). To disable it: "
            f"gantline key revoke {key_id} --disable-made"
        )


@key.command()
@click.option(
    "--require/--waive", default=None, help="Let only workers with a key run jobs, or any worker."
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def workers(cli: Cli, /, require: bool | None, yes: bool) -> None:
    """Show or say whether a worker needs a key: GANTLINE_WORKER_KEY."""
    async with cli.opened() as store:
        if require is not None:
            if require and not yes:
                alive = counted(len(await live_sessions(store)), "worker")
                await confirm(f"have those of {alive} stop that have no key")
            details = {"required": require}
            audit = cli.audit(store)
            await audit.done("requireWorkerKey", Action.MANAGE_KEYS, "workers", details)
            await require_worker_key(store, required=require)
        cli.output.one({"required": await is_worker_key_required(store)})
        if require:
            say("A worker without a valid key does not start; one that runs stops in 20 seconds.")


@key.command()
def pepper() -> None:
    """Print a new secret for GANTLINE_KEY_PEPPER, which creating and checking keys needs."""
    write(new_pepper())


@asynccontextmanager
async def _opened(
    cli: Cli, peppers: Peppers | None = None
) -> AsyncIterator[tuple[ApiKeys, CliAudit]]:
    """The keys of a store that is there; to look at them, no pepper is needed."""
    async with cli.opened() as store:
        yield ApiKeys(store, peppers or Peppers.random(), clock=cli.clock), cli.audit(store)


def _id_of(text: str) -> str:
    """A user may paste the whole key, but it would be in the shell's history then."""
    if text.count("_") == 2:
        raise InvalidInput(
            "This looks like a whole key, which must not be on a command line.",
            next_step="Give its id alone, the part between the two underscores; rotate the key.",
        )
    return text


def _granted(grant: KeyGrant) -> dict[str, Any]:
    """What a key may do, for the audit; of its subjects, which may be people, how many."""
    data: dict[str, Any] = msgspec.to_builtins(grant, order="sorted")
    return data | {"subjects": len(grant.subjects)}


def _row(one: ApiKey) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(one, order="sorted")
    grant = data.pop("grant")
    first = {"keyId": data.pop("id"), "name": grant["name"], "state": data.pop("state")}
    return first | {name: grant[name] for name in _GRANTED} | data


def _made_row(made: Made) -> dict[str, Any]:
    return {
        "kind": made.kind,
        "name": made.name,
        "state": made.state,
        "tenantId": made.tenant_id,
        "isActive": made.is_active,
    }


def _show_issued(cli: Cli, issued: IssuedKey) -> None:
    cli.output.one({"key": issued.text, **_row(issued.key)})
    say("Keep the key now: it is shown this once.")
