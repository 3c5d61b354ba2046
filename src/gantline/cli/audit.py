"""gantline audit: reading, verifying, exporting and pruning the audit trail."""

import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from gantline.audit.chain import EVERYTHING, AuditChains, AuditEvent, AuditFilter, FaultyEntry
from gantline.audit.retention import AuditPruned, AuditPruner
from gantline.audit.verification import (
    LONGEST_LINE,
    ChainReport,
    Checkpoint,
    Verifier,
    encode_line,
    read_checkpoints,
    read_events,
    verify_chain,
)
from gantline.cli.backend import Backend
from gantline.cli.command import FAILED, command, confirm
from gantline.cli.options import instant_or_span
from gantline.cli.session import Cli
from gantline.cli.table import Columns
from gantline.cli.talk import counted, say, write_json
from gantline.contract.clock import Clock
from gantline.contract.errors import InvalidInput

_COLUMNS: Final = Columns(
    ("version", "happenedAt", "actor", "type", "aggregate", "outcome", "count"),
    prose="aggregate",
    expendable=("count", "outcome"),
)
_FINDINGS: Final = Columns(("tenantId", "versions", "what", "aggregate", "detail"), prose="detail")
_REPORT_EVERY: Final = 10_000

everywhere_option = click.option(
    "--all-tenants",
    "everywhere",
    is_flag=True,
    help="The chains of all tenants and of the installation; needs the store itself.",
)


@click.group()
def audit() -> None:
    """Read, verify and export the audit trail."""


@audit.command(name="list")
@click.option("--aggregate", help="Such as job:<id>, queue:<name>, key:<id>, access.")
@click.option("--actor", help="Such as key:<id> or user:<sub>.")
@click.option("--action", help="Such as cancelJob or jobs:cancel.")
@click.option("--since", type=instant_or_span, help="Such as 24h, 30d or 2026-11-01.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@everywhere_option
@command
async def list_(cli: Cli, /, limit: int, everywhere: bool, **chosen_by: Any) -> None:
    """List actions and refusals, newest first."""
    audit_filter = AuditFilter(**chosen_by)
    found: list[AuditEvent] = []
    async with cli.backend() as backend:
        for tenant_id in await backend.audited_tenants(everywhere=everywhere):
            found += await _first(backend.audit_trail(tenant_id, audit_filter), audit_filter, limit)
        whose = backend.whose
    found.sort(key=lambda event: (event.time, event.version), reverse=True)
    rows = [_row(event) for event in found[:limit]]
    cli.output.rows(rows, _COLUMNS, empty=f"The audit trail of {whose} has nothing of this.")


async def _first(
    events: AsyncIterator[AuditEvent | FaultyEntry], audit_filter: AuditFilter, limit: int
) -> list[AuditEvent]:
    found: list[AuditEvent] = []
    report, count = _progress_line("looked at"), 0
    async for event in events:
        count += 1
        report(count)
        if isinstance(event, FaultyEntry):
            _warn(event)
            continue
        if len(found) == limit or audit_filter.is_past(event):
            break
        if audit_filter.matches(event):
            found.append(event)
    return found


@audit.command()
@click.option("--file", "files", multiple=True, type=click.Path(path_type=Path), help="An export.")
@click.option(
    "--checkpoint",
    "checkpoints",
    type=click.Path(path_type=Path),
    help="An earlier `checkpoint` or `export`: shows whether the end was cut off since.",
)
@everywhere_option
@command
async def verify(
    cli: Cli, /, files: tuple[Path, ...], checkpoints: Path | None, everywhere: bool
) -> None:
    """Verify that no entry was changed, added, moved or removed; exit with 1 if one was."""
    known = read_checkpoints(_lines(checkpoints)) if checkpoints else {}
    if files:
        results = _verified_files(files, known, everywhere=everywhere, now=cli.clock.now())
    else:
        async with cli.backend() as backend:
            results = await _verified_chains(backend, known, everywhere=everywhere, clock=cli.clock)
    _report(cli, results)


async def _verified_chains(
    backend: Backend, known: dict[str, Checkpoint], *, everywhere: bool, clock: Clock
) -> list[ChainReport]:
    tenants = await backend.audited_tenants(everywhere=everywhere)
    if everywhere or not tenants:  # one whose chain is gone altogether is not among them
        tenants = [*tenants, *sorted(set(known) - set(tenants))]
    return [
        await _verified_chain(backend, tenant_id, known.get(tenant_id), clock)
        for tenant_id in tenants
    ]


async def _verified_chain(
    backend: Backend, tenant_id: str, known: Checkpoint | None, clock: Clock
) -> ChainReport:
    """What is found is looked at once more: old events may have been pruned while they were read,
    and the event that says so was not there yet."""
    for is_last in (False, True):
        result = await verify_chain(
            tenant_id,
            backend.audit_trail(tenant_id),
            now=clock.now(),
            checkpoint=known,
            progress=_progress_line("verified"),
        )
        if is_last or not result.findings:
            break
    return result


def _verified_files(
    files: Sequence[Path], known: dict[str, Checkpoint], *, everywhere: bool, now: datetime
) -> list[ChainReport]:
    results = [one for file in files for one in _verified_file(file, known, now)]
    if everywhere or not results:  # one whose chain is gone altogether is in none of them
        there = {one.tenant_id for one in results}
        gone = sorted(set(known) - there)
        results += [Verifier(one, known[one], now=now).finish() for one in gone]
    return results


def _verified_file(file: Path, known: dict[str, Checkpoint], now: datetime) -> list[ChainReport]:
    verifiers: dict[str, Verifier] = {}
    report, last = _progress_line("verified"), ""
    for count, event in enumerate(read_events(_lines(file)), start=1):
        last = event.tenant_id if isinstance(event, AuditEvent) else last
        if last not in verifiers:
            verifiers[last] = Verifier(last, known.get(last), now=now)
        verifiers[last].add(event)
        report(count)
    return [verifier.finish() for verifier in verifiers.values()]


def _report(cli: Cli, results: Sequence[ChainReport]) -> None:
    findings = [finding for one in results for finding in one.findings]
    for one in results:
        versions = f"{one.first_version} to {one.last_version}" if one.events else "none"
        judgement = counted(len(one.findings), "finding") if one.findings else "unbroken"
        say(f"{_named(one.tenant_id)}: {counted(one.events, 'event')} ({versions}), {judgement}.")
        if gone := one.removed:
            before = f"{gone.before:%Y-%m-%d %H:%M}"
            say(f"  What was older than {before} has been removed by {gone.actor!r}.")
    if not results:
        say("There is no audit trail yet.")
    rows = [
        msgspec.to_builtins(one) | {"versions": _versions(one.version, one.last_version)}
        for one in findings
    ]
    cli.output.rows(rows, _FINDINGS, empty="Nothing was changed, as far as a chain shows.")
    if findings:
        sys.exit(FAILED)


@audit.command()
@everywhere_option
@command
async def export(cli: Cli, /, everywhere: bool) -> None:
    """Print the whole trail as JSON lines, newest first, for `verify --file` and other tools."""
    async with cli.backend() as backend:
        report, count, faulty = _progress_line("exported"), 0, 0
        for tenant_id in await backend.audited_tenants(everywhere=everywhere):
            async for event in backend.audit_trail(tenant_id):
                if isinstance(event, FaultyEntry):
                    faulty += 1
                    _warn(event)
                    continue
                write_json(encode_line(event).decode(), nl=False)
                count += 1
                report(count)
    say(f"{counted(count, 'event')}.")
    if faulty:
        sys.exit(FAILED)


@audit.command()
@everywhere_option
@command
async def checkpoint(cli: Cli, /, everywhere: bool) -> None:
    """Print the end of each chain; keep it elsewhere, for `verify --checkpoint`."""
    async with cli.backend() as backend:
        for tenant_id in await backend.audited_tenants(everywhere=everywhere):
            newest = await _first(backend.audit_trail(tenant_id), EVERYTHING, 1)
            for event in newest:
                made = Checkpoint(
                    tenant_id=tenant_id, version=event.version, hash=event.hash, time=event.time
                )
                write_json(encode_line(made).decode(), nl=False)


@audit.command()
@click.option("--before", type=instant_or_span, required=True, help="Such as 400d or 2026-01-01.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@everywhere_option
@command
async def prune(cli: Cli, /, before: datetime, yes: bool, everywhere: bool) -> None:
    """Remove older entries and record that. The chain still verifies."""
    async with cli.opened() as store:
        tenants = await AuditChains(store).tenants() if everywhere else [cli.tenant]
        if not yes:
            whose = "all tenants" if everywhere else f"the tenant {cli.tenant!r}"
            await confirm(f"remove the audit trail of {whose} before {before:%Y-%m-%d %H:%M}")
        pruner = AuditPruner(store)
        pruned = [
            await pruner.prune(tenant_id, before=before, actor=cli.actor) for tenant_id in tenants
        ]
    cli.output.rows([_pruned_row(one) for one in pruned], _PRUNED, empty="There was nothing.")
    if any(one.findings for one in pruned):
        say("A chain that does not verify is evidence: nothing of it was removed.")
        sys.exit(FAILED)


_PRUNED: Final = Columns(("tenantId", "count", "through", "findings"))


def _pruned_row(pruned: AuditPruned) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(pruned)
    return data | {"findings": len(pruned.findings)}


def _row(event: AuditEvent) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(event)
    details = event.payload.get("details")
    return data | {
        "happenedAt": data["time"],
        "outcome": event.payload.get("outcome"),
        "count": details.get("count") if isinstance(details, dict) else None,
    }


def _warn(faulty: FaultyEntry) -> None:
    say(f"Warning: {faulty.where} {faulty.problem}. See `gantline audit verify`.")


def _named(tenant_id: str) -> str:
    return f"The tenant {tenant_id!r}" if tenant_id else "The installation itself"


def _versions(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return str(first) if last is None else f"{first}-{last}"


def _lines(file: Path) -> Iterable[bytes]:
    try:
        with file.open("rb") as opened:
            yield from iter(lambda: opened.readline(LONGEST_LINE), b"")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.") from None


def _progress_line(done: str) -> Any:
    """Say now and then how far it is."""

    def report(count: int) -> None:
        if count % _REPORT_EVERY == 0:
            say(f"{count} events {done}")

    return report
