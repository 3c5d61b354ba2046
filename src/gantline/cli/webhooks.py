"""gantline webhook: endpoints that get the events of jobs, and what was delivered."""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click
import msgspec

from gantline.api.requests import DeliveriesToReplay, WebhookToKeep
from gantline.cli.backend import Backend
from gantline.cli.command import FAILED, command, confirm
from gantline.cli.options import parse_id, span
from gantline.cli.session import Cli
from gantline.cli.table import Columns
from gantline.cli.talk import say
from gantline.contract.domain_event import ALL_DOMAIN_EVENTS, ALL_EVENTS
from gantline.contract.errors import GantlineError, InvalidInput
from gantline.contract.webhook import (
    DELIVERY_TYPE,
    EVENT_TYPES,
    OUTCOMES,
    BodyFormat,
    DeliveryStatus,
    IssuedWebhook,
    WebhookDelivery,
)

# A worker that has just been started takes a moment.
_SOON: Final = timedelta(seconds=2)
SECRET_VARIABLE: Final = "GANTLINE_WEBHOOK_SECRET"  # noqa: S105  # the name of a variable
NO_KEY: Final = (
    "No live worker delivers webhooks: start the workers with GANTLINE_WEBHOOK_KEY, as it is where "
    "webhooks are made."
)
_COLUMNS: Final = Columns(
    ("webhookId", "status", "url", "eventTypes", "failingSince", "description"),
    expendable=("description", "failingSince", "eventTypes"),
)
_DELIVERY_COLUMNS: Final = Columns(
    ("deliveryId", "status", "eventType", "attempts", "httpStatus", "createdAt", "errorMessage"),
    prose="errorMessage",
    expendable=("createdAt", "eventType"),
)
_TRY_COLUMNS: Final = Columns(
    ("attempt", "endedAt", "httpStatus", "latencySeconds", "errorMessage", "responseBody"),
    prose="errorMessage",
    expendable=("responseBody", "latencySeconds"),
)


@click.group()
def webhook() -> None:
    """Send events of jobs to endpoints, and inspect deliveries."""


@webhook.command()
@click.argument("url")
@click.option(
    "--event",
    "event_types",
    multiple=True,
    metavar="TYPE",
    help=f"Events to send: {', '.join((*EVENT_TYPES, ALL_EVENTS))}, domain events by their types, "
    f"{ALL_DOMAIN_EVENTS}; default: all ends of jobs.",
)
@click.option("--type", "job_types", multiple=True, help="Only of these job types; default: all.")
@click.option("--description", default="")
@click.option(
    "--format",
    type=click.Choice([*map(str, BodyFormat)]),
    default=str(BodyFormat.STANDARD),
    show_default=True,
)
@click.option("--header-prefix", default="X-Gantline", show_default=True)
@click.option("--timeout", "answered_within", type=span, default="30s", show_default=True)
@click.option("--retry", "waits", type=span, multiple=True, help="A wait before a retry.")
@click.option("--concurrency", type=click.IntRange(1, 100), default=4, show_default=True)
@click.option(
    "--secret-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Where the secret is that its receiver has already; `-` reads it from standard input.",
)
@command
async def add(
    cli: Cli,
    /,
    event_types: tuple[str, ...],
    job_types: tuple[str, ...],
    answered_within: timedelta,
    waits: tuple[timedelta, ...],
    secret_file: str | None,
    **others: Any,
) -> None:
    """Create a webhook for the tenant. Its secret is shown only once, one of a file not at all."""
    secret = None if secret_file is None else _read_secret(secret_file)
    webhook = WebhookToKeep(
        event_types=event_types or OUTCOMES,
        job_types=job_types,
        timeout_seconds=answered_within.total_seconds(),
        retry_seconds=tuple(wait.total_seconds() for wait in waits) or None,
        **others,
    )
    async with cli.backend(create=True) as backend:
        issued = await backend.create_webhook(_checked(webhook), secret=secret)
        known = await backend.known("type") if job_types else None
        _show_issued(cli, issued)
        for name in job_types:
            if name in (*EVENT_TYPES, ALL_EVENTS):
                say(f"Warning: {name} is an event, and no type of job: --event {name}.")
            elif known is not None:
                known.say_if_unseen("type", name)


@webhook.command(name="list")
@command
async def list_(cli: Cli) -> None:
    """List webhooks, oldest first."""
    async with cli.backend() as backend:
        rows = [msgspec.to_builtins(one) for one in await backend.webhooks()]
        empty = f"There are no webhooks of {backend.whose}."
    cli.output.rows(rows, _COLUMNS, empty=empty)


@webhook.command()
@click.argument("webhook_id")
@command
async def show(cli: Cli, webhook_id: str) -> None:
    """Show a webhook. Its secret cannot be shown again."""
    async with cli.backend() as backend:
        cli.output.one(msgspec.to_builtins(await backend.webhook(_id(webhook_id))))


@webhook.command()
@click.argument("webhook_id")
@click.option("--wait", type=span, default="30s", show_default=True, help="How long to wait.")
@command
async def test(cli: Cli, webhook_id: str, wait: timedelta) -> None:
    """Send a test event to a webhook once, and show the answer."""
    async with cli.backend() as backend:
        made = await backend.test_webhook(_id(webhook_id))
        is_delivered = await _watch(cli, backend, made.webhook_id, made.delivery_id, wait)
    if not is_delivered:
        sys.exit(FAILED)


async def _ended(
    backend: Backend, webhook_id: UUID, delivery_id: UUID, within: timedelta
) -> WebhookDelivery:
    async with asyncio.timeout(within.total_seconds()):
        while True:
            found = await backend.delivery(webhook_id, delivery_id)
            if found.status is not DeliveryStatus.PENDING:
                return found
            await asyncio.sleep(backend.look_again_seconds)


async def _undeliverable(cli: Cli, backend: Backend) -> str:
    """Why no live worker delivers, with the next step; empty where one does or nobody knows."""
    served = (await backend.known("type")).served
    if served is None or DELIVERY_TYPE in served:
        return ""
    if not served:
        return f"No worker is alive to make it. Start one: {cli.worker_command}"
    return NO_KEY


async def _watch(
    cli: Cli, backend: Backend, webhook_id: UUID, delivery_id: UUID, wait: timedelta
) -> bool:
    """Wait until a delivery has ended; a worker makes it, so there must be one."""
    pending = f"The delivery {delivery_id} is still pending."
    soon = min(wait, _SOON)
    try:
        found = await _ended(backend, webhook_id, delivery_id, soon)
    except TimeoutError:
        if problem := await _undeliverable(cli, backend):
            raise GantlineError(f"{pending} {problem}") from None
        try:
            found = await _ended(backend, webhook_id, delivery_id, wait - soon)
        except TimeoutError:
            say(f"{pending} Does a worker run, and was it started with GANTLINE_WEBHOOK_KEY?")
            raise
    _show_delivery(cli, found)
    return found.status is DeliveryStatus.DELIVERED


def _show_delivery(cli: Cli, delivery: WebhookDelivery) -> None:
    row = msgspec.to_builtins(delivery)
    tries = row.pop("tries")
    cli.output.one_with(row, "tries", tries, _TRY_COLUMNS)


@webhook.command()
@click.argument("webhook_id")
@click.option("--status", type=click.Choice([*map(str, DeliveryStatus)], case_sensitive=False))
@click.option("--delivery", "delivery_id", help="Show one delivery with its attempts.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@command
async def deliveries(
    cli: Cli, webhook_id: str, status: str | None, delivery_id: str | None, limit: int
) -> None:
    """List deliveries to a webhook, newest first, or show one with its attempts."""
    async with cli.backend() as backend:
        if delivery_id is not None:
            _show_delivery(cli, await backend.delivery(_id(webhook_id), _id(delivery_id)))
            return
        with_status = None if status is None else DeliveryStatus(status)
        listed = backend.deliveries(_id(webhook_id), status=with_status, limit=limit)
        rows = [msgspec.to_builtins(one) async for one in listed]
    cli.output.rows(rows, _DELIVERY_COLUMNS, empty="There are no such deliveries.")


@webhook.command()
@click.argument("webhook_id")
@click.argument("delivery_ids", nargs=-1)
@click.option(
    "--status",
    type=click.Choice([DeliveryStatus.FAILED.value, DeliveryStatus.DELIVERED.value]),
    default=DeliveryStatus.FAILED.value,
    show_default=True,
    help="Only deliveries with this state, where no id is given.",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--dry-run", is_flag=True, help="Only count; change nothing.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def replay(
    cli: Cli,
    /,
    webhook_id: str,
    delivery_ids: tuple[str, ...],
    status: str,
    limit: int,
    dry_run: bool,
    yes: bool,
) -> None:
    """Repeat deliveries: the given ones, or else the newest that failed."""
    named = [_id(one) for one in delivery_ids]
    async with cli.backend() as backend:
        about = _id(webhook_id)
        if named:
            made = [await backend.replay_delivery(about, one) for one in named]
            rows = [msgspec.to_builtins(one) for one in made]
            cli.output.rows(rows, _DELIVERY_COLUMNS, empty="")
            return
        replay = DeliveriesToReplay(status=DeliveryStatus(status), limit=limit, dry_run=True)
        report = await backend.replay_deliveries(about, replay)
        if not dry_run and report.matching:
            if not yes:
                await confirm(f"make {_counted(report.matching)} once more")
            sure = msgspec.structs.replace(replay, dry_run=False)
            report = await backend.replay_deliveries(about, sure)
        cli.output.one(msgspec.to_builtins(report))


@webhook.command()
@click.argument("webhook_id")
@click.option(
    "--overlap",
    type=span,
    default="24h",
    show_default=True,
    help="How long the old secret still signs, too.",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def rotate(cli: Cli, webhook_id: str, overlap: timedelta, yes: bool) -> None:
    """Replace the secret of a webhook; the new one is shown only once."""
    if not overlap and not yes:
        await confirm("end the old secret at once")
    async with cli.backend() as backend:
        _show_issued(cli, await backend.rotate_webhook(_id(webhook_id), overlap=overlap))


@webhook.command()
@command
async def rekey(cli: Cli) -> None:
    """Encrypt the secrets of all webhooks again, with the first key of GANTLINE_WEBHOOK_KEY.

    Afterwards the keys after it can be taken away. It needs the store itself.
    """
    async with cli.store_backend() as backend:
        done = await backend.rekey_webhooks()
    cli.output.one(msgspec.to_builtins(done))
    if done.unreadable:
        say("Those that cannot be opened need their old key; or rotate their secrets.")
        sys.exit(FAILED)


@webhook.command()
@click.argument("webhook_id")
@command
async def enable(cli: Cli, webhook_id: str) -> None:
    """Send events to a webhook again; deliveries that failed meanwhile can be replayed."""
    async with cli.backend() as backend:
        cli.output.one(msgspec.to_builtins(await backend.enable_webhook(_id(webhook_id))))


@webhook.command()
@click.argument("webhook_id")
@command
async def disable(cli: Cli, webhook_id: str) -> None:
    """Stop sending events to a webhook. Pending deliveries fail."""
    async with cli.backend() as backend:
        cli.output.one(msgspec.to_builtins(await backend.disable_webhook(_id(webhook_id))))


@webhook.command()
@click.argument("webhook_id")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@command
async def delete(cli: Cli, webhook_id: str, yes: bool) -> None:
    """Delete a webhook; pending deliveries fail."""
    async with cli.backend() as backend:
        found = await backend.webhook(_id(webhook_id))
        if not yes:
            await confirm(f"delete the webhook {found.webhook_id} to {found.url}")
        await backend.delete_webhook(found.webhook_id)
        cli.output.one({"webhookId": str(found.webhook_id), "deleted": True})


@webhook.command()
@click.argument("body", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-H", "--header", "headers", multiple=True, help="As received: 'webhook-id: …'.")
@click.option("--tolerance", type=span, default="5m", show_default=True)
@command
async def verify(cli: Cli, body: str, headers: tuple[str, ...], tolerance: timedelta) -> None:
    """Check the signature of a request; its BODY is a file, or `-`.

    The secrets are in GANTLINE_WEBHOOK_SECRET, several separated by blanks.
    """
    from gantline.webhooks import verify as verified_by

    secrets = os.environ.get(SECRET_VARIABLE, "").split()
    if not secrets:
        raise InvalidInput(
            "There is no secret to verify by.",
            next_step=f"Set {SECRET_VARIABLE}, where no process list and no history shows it.",
        )
    came = sys.stdin.buffer.read() if body == "-" else Path(body).read_bytes()  # noqa: ASYNC240  # nothing else runs
    done = verified_by(came, dict(map(_header, headers)), secrets, tolerance=tolerance)
    cli.output.one({"webhookId": done.webhook_id, "sentAt": done.sent_at.isoformat()})


def _read_secret(file: str) -> str:
    try:
        return (sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")).strip()
    except UnicodeError:
        raise InvalidInput("The secret is not text in UTF-8.") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise InvalidInput(f"{text[:64]!r} is not a header.", next_step="Write it as name: value.")
    return name.strip(), value.strip()


def _checked(webhook: WebhookToKeep) -> WebhookToKeep:
    """Hold it to the bounds that its type names, which only decoding does."""
    try:
        return msgspec.convert(msgspec.to_builtins(webhook), WebhookToKeep)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{error}.") from None


def _id(text: str) -> UUID:
    return parse_id(text, what="an id")


def _counted(deliveries: int) -> str:
    return "1 delivery" if deliveries == 1 else f"{deliveries} deliveries"


def _show_issued(cli: Cli, issued: IssuedWebhook) -> None:
    row: dict[str, Any] = msgspec.to_builtins(issued.webhook)
    if not issued.secret:
        cli.output.one(row)
        return
    cli.output.one({"webhookId": row.pop("webhookId"), "secret": issued.secret, **row})
    say("Keep the secret now: it is shown this once.")
