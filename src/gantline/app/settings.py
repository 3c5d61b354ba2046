"""Settings: each declared once, in code by groups, else from flag, environment, file, default.

The store and the trigger may be named in code too: `Gantline("sqlite:///jobs.db")`. That counts
before environment and file, in every process alike, so that no worker looks elsewhere than where
the application submits. Only a flag, which is for one command, comes before it.
"""

import math
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from pathlib import Path
from typing import Any, Final, NamedTuple

from gantline.contract.bounds import SHORTEST, Positive, check_span
from gantline.contract.errors import InvalidInput
from gantline.contract.job import DEFAULT_QUEUE, DEFAULT_TENANT, check_queue
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT, PayloadCheck
from gantline.contract.policy import JobRules
from gantline.contract.text import LABEL_LIMIT, name_problem
from gantline.telemetry.tracing import TraceRuns
from gantline.telemetry.url_secrets import without_secrets
from gantline.worker.executor import RunHook
from gantline.worker.handler import DEFAULT_TIMEOUT
from gantline.worker.settings import WorkerSettings

PREFIX: Final = "GANTLINE_"
FILE: Final = "gantline.toml"
DEFAULT_STORE: Final = "sqlite:///gantline.db"
CODE: Final = "code"
FLAG: Final = "flag"
DEFAULT: Final = "default"


class JobDefaults(JobRules, frozen=True, kw_only=True):
    """What holds for the jobs of an application; a declaration may say otherwise for its type."""

    queue: str = DEFAULT_QUEUE
    """Where jobs wait."""
    tenant: str = DEFAULT_TENANT
    """Whose jobs they are where a submit does not say it."""
    timeout: timedelta = DEFAULT_TIMEOUT
    """How long one attempt may take."""
    payload_limit: Positive = DEFAULT_PAYLOAD_LIMIT
    """The most bytes that a payload may have as JSON. For all types alike, as all below."""
    payload_check: PayloadCheck | None = None
    """Given the type and the payload of a job, returns why it is refused, if it is."""
    hooks: Sequence[RunHook] = ()
    """Async context managers of the Context, entered before a handler is called."""
    trace_runs: TraceRuns | None = None
    """How the span of a run stands to that of the submit: `link`, `child` or `off`; None is as
    GANTLINE_TRACE_RUNS says, else `link`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("queue", self.queue), ("tenant", self.tenant)):
            if problem := name_problem(value, LABEL_LIMIT) if value else "is empty":
                next_step = f"Name it by 1 to {LABEL_LIMIT} printable characters."
                raise InvalidInput(f"The default {name} {value!r} {problem}.", next_step=next_step)
        check_queue(self.queue)
        check_span("timeout", self.timeout, least=SHORTEST)
        for hook in self.hooks:
            if isasyncgenfunction(hook) or isgeneratorfunction(hook) or iscoroutinefunction(hook):
                next_step = "Write an `async def` with one `yield`, under @asynccontextmanager."
                raise InvalidInput(f"{hook!r} gives no context manager.", next_step=next_step)

    @property
    def of_types(self) -> dict[str, Any]:
        """What a declaration may say otherwise."""
        names = ("queue", "timeout", *JobRules.__struct_fields__)
        return {name: getattr(self, name) for name in names}


class Setting(NamedTuple):
    """One setting: its name in files, its default and what it is for."""

    name: str
    default: str
    help: str

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


def _seconds(name: str, default: timedelta, about: str) -> Setting:
    return Setting(f"{name}_seconds", f"{default.total_seconds():g}", about)


_WORKER: Final = WorkerSettings()
SETTINGS: Final = (
    Setting("store", DEFAULT_STORE, "Where jobs are kept, as a URL."),
    Setting("url", "", "A server to ask instead, as a URL; its key is GANTLINE_API_KEY."),
    Setting(
        "trigger", "", "A broker that wakes workers, as a URL (amqp://host); else only polling."
    ),
    Setting("outbox", "", "A SQL database for submits in its transactions, as a URL; see docs."),
    Setting("bridge", "", "A broker that envelopes come from and outcomes go to, as a URL."),
    Setting("app", "", "Where the application object is, as module:name."),
    Setting("tenant", "default", "Whose jobs are meant."),
    Setting("queues", "", "Queues to serve with their slots: documents:10,default:5."),
    Setting("slots", "", "How many runs at once in all queues of a process; else all they have."),
    Setting("claim_batch", "", "How many jobs of a queue one claim takes; else half its slots."),
    _seconds("lease", _WORKER.lease, "After how long without renewal a run is taken over."),
    Setting("renew_seconds", "", "How often leases are renewed; else as WorkerSettings has it."),
    _seconds("poll", _WORKER.poll, "The longest wait between two looks for work."),
    _seconds("drain", _WORKER.drain, "How long running jobs may go on after a stop."),
    Setting("processes", "1", "How many worker processes to run."),
    Setting("health", "", "Where a worker serves health and metrics: :8081, 127.0.0.1:8081."),
    Setting("live_path", "/healthz", "Where liveness is asked for as well: /v1/health/live."),
    Setting("ready_path", "/readyz", "Where readiness is asked for as well: /v1/health/ready."),
    Setting("require_broker", "no", "Whether a worker without its broker is unready: yes or no."),
    Setting("subject_required", "no", "Whether the API refuses jobs without a subject: yes or no."),
    Setting("allowed_hosts", "", "Names by which the API may be called: shop.example; * is any."),
    Setting("trusted_proxies", "", "Proxies that name the API's callers: 10.0.0.5, 10.1.0.0/16."),
    Setting("rate_limit_per_key", "", "How often a key may ask the API: 50/s, 600/min:100."),
    Setting("rate_limit_per_tenant", "", "How often a tenant may ask the API, as for a key."),
    Setting("schedules_per_tenant", "1000", "How many a tenant may have; code's are not refused."),
    Setting("waiting_per_tenant", "1000000", "How many jobs of a tenant but your own may wait."),
    Setting("read_cache_seconds", "0", "How old a status read from memory may be; 0: none is."),
    Setting("webhook_allow", "", "Networks of your own that webhooks may reach: 10.1.0.0/16."),
    Setting("webhook_ports", "443", "Ports by which webhooks may reach the public: 443 8443."),
    Setting("webhook_source", "/gantline", "How CloudEvents name this installation."),
    Setting("webhook_disable_days", "5", "After how many days of failure a webhook is disabled."),
    Setting("log_format", "text", "How a worker writes its log: text or json."),
    Setting("history", "", "A folder in which each process records the calls of its store."),
)
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


class Value(NamedTuple):
    """A setting's value, and where it came from."""

    text: str
    source: str

    @property
    def shown(self) -> str:
        """The value for people to read."""
        return without_secrets(self.text)


class Settings:
    """All settings, resolved: flag before environment before file before default.

    An environment variable that is empty says nothing.
    """

    def __init__(self, flags: Mapping[str, str | None], folder: Path) -> None:
        self._flags = flags
        self._files = _read_files(folder)

    def value(self, name: str) -> Value:
        setting = _BY_NAME[name]
        if (flag := self._flags.get(name)) is not None:
            return Value(flag, FLAG)
        if text := os.environ.get(setting.variable):
            return Value(text, setting.variable)
        for file, table in self._files:
            if name in table:
                return Value(str(table[name]), file)
        return Value(setting.default, DEFAULT)

    def named(self, code: str | None, name: str) -> Value:
        """What an application uses: what its code names, else what the settings say."""
        return Value(code, CODE) if code is not None else self.value(name)

    @property
    def most_schedules(self) -> int:
        """How many a tenant may have."""
        return self.whole("schedules_per_tenant", least=0, most=1_000_000)

    def misspelt(self) -> dict[str, str]:
        """Variables that are no setting's but look like one, with the one that they look like."""
        names = {setting.variable.removeprefix(PREFIX): setting.variable for setting in SETTINGS}
        given = {one.removeprefix(PREFIX) for one in os.environ if one.startswith(PREFIX)}
        alike = {
            name: get_close_matches(name, names, n=1, cutoff=0.75) for name in given - {*names}
        }
        return {PREFIX + name: names[found[0]] for name, found in sorted(alike.items()) if found}

    def __getitem__(self, name: str) -> str:
        return self.value(name).text

    def number(self, name: str, *, least: float = 0, most: float = 1e6) -> float:
        value = self.value(name)
        try:
            number = float(value.text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise InvalidInput(
                f"The setting {name} is {value.shown!r} (from {value.source}).",
                next_step=f"It must be a number from {least:g} to {most:g}.",
            )
        return number

    def choice(self, name: str, *among: str) -> str:
        value = self.value(name)
        if value.text not in among:
            raise InvalidInput(
                f"The setting {name} is {value.shown[:64]!r} (from {value.source}).",
                next_step=f"It must be {' or '.join(among)}.",
            )
        return value.text

    def whole(self, name: str, *, least: int, most: int) -> int:
        number = self.number(name, least=least, most=most)
        if number != int(number):
            source = self.value(name).source
            raise InvalidInput(
                f"The setting {name} is {number:g} (from {source}), no whole number."
            )
        return int(number)


def _read_files(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """gantline.toml, then [tool.gantline] in pyproject.toml: the first that has it counts."""
    tables: tuple[tuple[str, tuple[str, ...]], ...] = (
        (FILE, ()),
        ("pyproject.toml", ("tool", "gantline")),
    )
    return [(name, _read_file(folder / name, path)) for name, path in tables]


def _read_file(file: Path, path: tuple[str, ...]) -> dict[str, Any]:
    if not file.is_file():
        return {}
    import tomllib  # most folders have no such file

    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file.name} cannot be read: {error}.") from None
    for key in path:
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise InvalidInput(f"{file.name}: {'.'.join(path)} is not a table of settings.")
    if unknown := table.keys() - _BY_NAME.keys():
        raise InvalidInput(
            f"{file.name} has no setting {', '.join(sorted(unknown))}.",
            next_step=f"It may have {', '.join(_BY_NAME)}.",
        )
    if wrong := [key for key, value in table.items() if not _is_plain(value)]:
        raise InvalidInput(f"{file.name}: {', '.join(wrong)} must be a text or a number.")
    return dict(table)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
