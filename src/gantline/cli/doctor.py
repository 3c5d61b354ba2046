"""gantline doctor: checks the settings, the store and the workers, and says what to do."""

import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Literal

import click
import msgspec

from gantline.app import Gantline
from gantline.app.settings import Value
from gantline.app.wakeup import broker_from_url
from gantline.app.webhooks import webhook_settings
from gantline.cli.command import FAILED, command
from gantline.cli.health import health_paths
from gantline.cli.options import (
    MOST_PROCESSES,
    named_for_workers,
    parse_queues,
    rate_limits,
    trusted_proxies,
)
from gantline.cli.session import Cli
from gantline.cli.store_choice import StoreChoice, store_label
from gantline.cli.table import Columns
from gantline.cli.talk import counted, say
from gantline.cli.webhooks import NO_KEY
from gantline.contract.errors import GantlineError
from gantline.contract.query import LaneCounts
from gantline.contract.retention import Retention
from gantline.contract.store import JobStore
from gantline.contract.version import __version__
from gantline.flow.limits import Limits
from gantline.flow.pressure import Held, measure_pressure
from gantline.manager.cursors import consumers
from gantline.manager.pruner import retention_lag
from gantline.manager.relay import OUTBOX
from gantline.manager.sessions import Session, live_sessions
from gantline.manager.switches import Closed, Switches
from gantline.stores.diagnostics import advice_of, software_of
from gantline.telemetry.health_server import parse_address
from gantline.webhooks.endpoints import ENDPOINTS
from gantline.webhooks.fan_out import CONSUMER as WEBHOOKS
from gantline.worker.settings import WorkerSettings

_COLUMNS: Final = Columns(("result", "found", "advice"), prose="advice")
_TOLERATED_SECONDS: Final = 5
_MOST_NAMED: Final = 5
_MOVED_WITHIN: Final = timedelta(minutes=1)
_REMOVED_WITHIN: Final = timedelta(minutes=5)
_READ_WITHIN: Final = timedelta(minutes=5)
_STARTED_WITHIN: Final = timedelta(minutes=5)
_HELD_BY: Final[Mapping[Held, str]] = {
    "gate": "its gate to open",
    "type": "room in the limit of the type",
    "group": "room in the limits of their groups",
}

Check = dict[str, str]


@click.command()
@command
async def doctor(cli: Cli) -> None:
    """Check settings, store and workers, and say how to fix problems.

    The exit code is 1 if something is bad; a warning alone is no failure.
    """
    say(f"gantline {__version__}, Python {platform.python_version()}")
    app, checks = _application(cli)
    checks.insert(0, _settings(cli, app))
    is_named = cli.settings.value("store").source != "default"
    if app is not None or is_named or not cli.settings["app"]:
        choice = cli.chosen(app)
        async with cli.opened(choice=choice._replace(passed_over=None)) as store:
            checks = [*await _store(cli, app, store, choice), *await _work(cli, store), *checks]
        checks += await _outbox(cli, app)
    checks += [
        _bad(
            f"{name} is a setting",
            f"{name} is not a setting",
            f"Did you mean {meant}?",
            result="warn",
        )
        for name, meant in cli.settings.misspelt().items()
    ]
    cli.output.rows(checks, _COLUMNS, empty="")
    if any(check["result"] == "bad" for check in checks):
        sys.exit(FAILED)


def _application(cli: Cli) -> tuple[Gantline | None, list[Check]]:
    if not cli.settings["app"]:
        return None, []
    try:
        app = cli.app()
    except GantlineError as error:
        return None, [
            _bad("the application imports", "the application cannot be imported", str(error))
        ]
    names = [one.name for one in app.job_types]
    return app, [
        _check(
            f"the application declares {counted(len(names), 'job')}",
            bool(names),
            "the application declares no job",
            "Declare one.",
        )
    ]


def _settings(cli: Cli, app: Gantline | None) -> Check:
    """Make all that workers and servers make of the settings."""
    named, worker = cli.settings, WorkerSettings() if app is None else app.worker
    refused: list[str] = []
    for make in (
        lambda: msgspec.structs.replace(worker, **named_for_workers(named, worker)),
        lambda: parse_queues(named["queues"]),
        lambda: named.whole("processes", least=1, most=MOST_PROCESSES),
        lambda: parse_address(named["health"]) if named["health"] else None,
        lambda: health_paths(cli),
        lambda: named.choice("require_broker", "yes", "no"),
        lambda: named.choice("subject_required", "yes", "no"),
        lambda: named.choice("log_format", "text", "json"),
        lambda: rate_limits(named),
        lambda: trusted_proxies(named),
        lambda: named.most_schedules,
        lambda: webhook_settings(named),
        lambda: broker_from_url(named["trigger"]),
    ):
        try:
            make()
        except GantlineError as error:
            refused.append(str(error))
    return _check(
        "the settings are accepted",
        not refused,
        f"{counted(len(refused), 'setting')} NOT accepted",
        " ".join(refused),
    )


def _durability(app: Gantline | None, store: JobStore) -> Check:
    required = "none" if app is None else app.storage.durability
    given = f"durability is {store.capabilities.durability}"
    if required != "none":
        return _check(
            f"{given}, and {required} is required",
            store.capabilities.survives(required),
            f"{given}, which is NOT the {required} that the application requires",
            "The application does not start. Use another store, or require less.",
        )
    return _check(
        given,
        store.capabilities.survives("power_loss"),
        f"{given}, which does NOT survive a power cut",
        f"An answered write can be lost by {store.capabilities.ack_lost_on}.",
    )


async def _store(
    cli: Cli, app: Gantline | None, store: JobStore, choice: StoreChoice
) -> list[Check]:
    drift = abs((await store.ping() - cli.clock.now()).total_seconds())
    software = " with ".join(f"{name} {text}" for name, text in (await software_of(store)).items())
    checks = [_good(f"jobs are kept in {store_label(store, choice)} ({choice.why})")]
    if choice.warning:
        two = "two stores are named"
        checks.append(_bad("one store is named", two, choice.warning, result="warn"))
    if software:
        checks.append(_good(f"the store is {software}"))
    clocks = f"the clocks of store and host differ by {drift:.1f} s"
    return [
        *checks,
        _durability(app, store),
        *(
            _check(one.what, one.is_good, one.what, one.next_step, result="warn")
            for one in await advice_of(store)
        ),
        _check(
            clocks,
            drift < _TOLERATED_SECONDS,
            f"{clocks}, which is too much",
            "The store's clock rules; set this host's by NTP, or delays and ages look wrong here.",
        ),
    ]


async def _work(cli: Cli, store: JobStore) -> list[Check]:
    alive = [session for session in await live_sessions(store) if not session.draining]
    switches = Switches(store)
    await switches.refresh()
    lanes = await store.counts(tenant_id=None)
    waiting = [lane for lane in lanes if lane.queued]
    held = [lane for lane in waiting if _advice_for_held(lane, switches)]
    orphaned = [lane for lane in waiting if not _is_served(lane, alive)]
    names = [f"{lane.job_type} in {lane.queue}" for lane in orphaned]
    unserved = counted(sum(lane.queued for lane in orphaned), "waiting job")
    return [
        *_closed(switches.closed),
        _check(
            counted(len(alive), "live worker"),
            bool(alive),
            "no live worker",
            f"Start one: {cli.worker_command}",
        ),
        _check(
            "every waiting job has a worker",
            not orphaned,
            f"{unserved} without a worker",
            f"No live worker serves {_first(names)}.",
        ),
        _check(
            "no waiting job is held back by a switch",
            not held,
            "a switch holds waiting jobs back",
            " ".join(_advice_for_held(lane, switches) for lane in held[:_MOST_NAMED]),
            result="warn",
        ),
        *await _limits(store, lanes),
        *await _consumers(store),
        await _retention(cli, store),
    ]


def _closed(closed: Closed | None) -> list[Check]:
    if closed is None:
        return []
    if closed.has_moved:
        next_step = f"Its jobs were moved to {closed.copied_to}: use that store."
    else:
        next_step = (
            f"{closed.by} copies it to {closed.copied_to} since {closed.since:%Y-%m-%d %H:%M}. If "
            f"that copy is not running any more, run it again, or: gantline store reopen."
        )
    return [_bad("the store is open", "the store is closed", next_step)]


async def _limits(store: JobStore, lanes: Sequence[LaneCounts]) -> list[Check]:
    """Whether jobs wait for long because of a limit, where there are any."""
    limits = Limits(store)
    await limits.refresh()
    if not limits.all_holding:
        return []
    now = await store.ping()
    pressure = await measure_pressure(store, limits, lanes, now)
    late = {
        lane.job_type
        for lane in lanes
        if lane.oldest_due_at and now - lane.oldest_due_at > _STARTED_WITHIN
    }
    held = [
        f"{counted(count, 'job')} of {name} for {_HELD_BY[by]}: gantline limit show {name}."
        for (name, by), count in pressure.held_back.items()
        if count and name in late
    ]
    return [
        _check(
            "no limit holds jobs back for long",
            not held,
            f"limits hold jobs back, for {_STARTED_WITHIN // timedelta(minutes=1)} minutes or more",
            f"There wait {' '.join(held[:_MOST_NAMED])}",
            result="warn",
        )
    ]


async def _retention(cli: Cli, store: JobStore) -> Check:
    kept: Retention | None = None
    with suppress(GantlineError):  # that the application cannot be imported is another check
        kept = cli.retention(store)
    lag = await retention_lag(store, kept)
    return _check(
        "old jobs are removed in time",
        lag < _REMOVED_WITHIN,
        "old jobs are removed too late",
        f"The oldest should have been gone {lag // timedelta(minutes=1)} minutes ago. A live "
        "worker removes them, but none that a consumer of events has still to read: "
        "gantline consumer list.",
        result="warn",
    )


async def _consumers(store: JobStore) -> list[Check]:
    found = await consumers(store)
    # Those of webhooks must not be forgotten: there is something to deliver.
    has_webhooks = bool(await store.read_records(ENDPOINTS, limit=1))
    kept = {WEBHOOKS} if has_webhooks else set()
    unread = {one.name for one in found if not one.run_by}
    left, failing = sorted(unread - kept), [one for one in found if one.is_failing]
    if not found:
        return []
    now = await store.ping()
    late = [
        f"{one.name} ({(now - one.unread_since) // timedelta(minutes=1)} minutes)"
        for one in found
        if one.unread_since and now - one.unread_since > _READ_WITHIN
    ]
    return [
        _check(
            "every consumer of events has a worker",
            not left,
            f"{counted(len(left), 'consumer')} of events without a worker",
            f"No live worker runs {_first(left)}: nothing that they have not read is removed. "
            "Start a worker that does, or: gantline consumer delete NAME.",
            result="warn",
        ),
        _check(
            "webhooks have a worker",
            not unread & kept,
            "webhooks are NOT delivered",
            NO_KEY,
            result="warn",
        ),
        _check(
            "no consumer of events fails",
            not failing,
            "a consumer of events fails",
            " ".join(f"{one.name}: {one.last_error.rstrip('.')}." for one in failing[:_MOST_NAMED]),
            result="warn",
        ),
        _check(
            "every consumer of events reads in time",
            not late,
            f"events wait for {counted(len(late), 'consumer')}",
            f"The oldest event has waited for {_first(late)}. Who fails, hangs or is too slow "
            "holds back retention: gantline consumer list.",
            result="warn",
        ),
    ]


async def _outbox(cli: Cli, app: Gantline | None) -> list[Check]:
    """Whether jobs leave the outbox, where there is one."""
    named = Value(app.outbox_url, app.outbox_named_by) if app else cli.settings.value("outbox")
    if not named.text:
        return []
    choice = StoreChoice(named.text, named.source)
    try:
        async with cli.opened(choice=choice) as outbox:
            lanes = [one for one in await outbox.counts(tenant_id=None) if one.job_type == OUTBOX]
            label, now = store_label(outbox, choice), await outbox.ping()
    except GantlineError as error:
        return [_bad("the outbox can be opened", "the outbox cannot be opened", str(error))]
    waiting, dead = sum(one.queued for one in lanes), sum(one.failed for one in lanes)
    is_stuck = any(one.oldest_due_at and now - one.oldest_due_at > _MOVED_WITHIN for one in lanes)
    return [
        _check(
            f"jobs leave the outbox {label}",
            not is_stuck,
            f"jobs stay in the outbox {label}",
            f"{counted(waiting, 'job')} there: workers of the application move them. Start one: "
            f"{cli.worker_command}",
        ),
        _check(
            "all that left the outbox was taken",
            not dead,
            "the store refused jobs of the outbox",
            f"{counted(dead, 'job')} could not be moved: gantline --store OUTBOX dead list",
            result="warn",
        ),
    ]


def _is_served(lane: LaneCounts, alive: Sequence[Session]) -> bool:
    return any(lane.queue in one.queues and lane.job_type in one.job_types for one in alive)


def _advice_for_held(lane: LaneCounts, switches: Switches) -> str:
    """What to do about a lane that a switch stops; empty where none does."""
    jobs = counted(lane.queued, "job")
    if lane.queue in switches.paused_queues:
        return f"{jobs} in the paused queue {lane.queue}: gantline queue resume {lane.queue}."
    if lane.job_type in switches.paused_types:
        return f"{jobs} of the paused type {lane.job_type}: gantline type resume {lane.job_type}."
    if lane.job_type in switches.disabled_types:
        return (
            f"{jobs} of the disabled type {lane.job_type} will fail: "
            f"gantline type enable {lane.job_type}."
        )
    return ""


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _check(
    what: str,
    is_good: bool,
    otherwise: str,
    advice: str,
    *,
    result: Literal["warn", "bad"] = "bad",
) -> Check:
    """`what` names the check and what should be found; `otherwise` is what was found instead."""
    return _good(what) if is_good else _bad(what, otherwise, advice, result=result)


def _good(what: str) -> Check:
    return {"check": what, "result": "ok", "found": what, "advice": ""}


def _bad(what: str, found: str, advice: str, *, result: Literal["warn", "bad"] = "bad") -> Check:
    return {"check": what, "result": result, "found": found, "advice": advice}
