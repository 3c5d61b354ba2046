"""Every setting: of the command line and the surroundings, and of the objects in code."""

import re
from collections.abc import Iterator
from datetime import timedelta
from inspect import getsource
from typing import Any, Final

import msgspec

from gantline import AuditSettings, JobDefaults, Retention, StorageSettings, WorkerSettings
from gantline.api.rate_limits import RateLimits
from gantline.api.settings import ApiSettings
from gantline.api.shares import Share
from gantline.api.streams.settings import StreamSettings
from gantline.app.settings import SETTINGS
from gantline.auth.rate_limit import RateLimit
from gantline.contract.retention import IN_MEMORY, ON_DISK
from gantline.webhooks.settings import WebhookSettings
from scripts.docs import markdown
from scripts.docs.markdown import code, span_text, table

INTRODUCTION: Final = """\
The first that names a setting counts: a flag of the command, the variable, `gantline.toml`,
then `[tool.gantline]` in `pyproject.toml`, the default. For the store, the trigger, the outbox
and the bridge, what the code names comes before all but the flag; of how a worker works, what
the code says (`WorkerSettings`) comes right before the default. `gantline config show` lists
all of them with where each came from."""

SECRETS: Final = {
    "GANTLINE_API_KEY": "The key that commands and the Python client send to a server.",
    "GANTLINE_KEY_PEPPER": "Keys and stream tokens are checked with it; `gantline key pepper` "
    "makes one. Several, the newest first: `2:… 1:…`.",
    "GANTLINE_WORKER_KEY": "The key of a worker, where the installation requires one.",
    "GANTLINE_WEBHOOK_KEY": "The secrets of webhooks are encrypted with it; without one they are "
    "off.",
    "GANTLINE_WEBHOOK_SECRET": "The secret of an endpoint, for `gantline webhook verify`.",
    "GANTLINE_TRACE_RUNS": "How spans of runs stand to those of submits: `link`, `child` or `off`.",
}
"""Variables that no file may name, because they are secret or are read before files are."""

# A field, with its default over one line or several, and the docstring right below it.
DOCUMENTED: Final = re.compile(
    r'^    (\w+): [^\n]*(?:\n {8}[^\n]*|\n    \))*\n    """(.*?)"""', re.MULTILINE | re.DOTALL
)
KEPT: Final = (
    f"By default {span_text(ON_DISK.completed or timedelta.max)} for Completed jobs and "
    f"{span_text(ON_DISK.failed or timedelta.max)} for others; on Redis, where nothing else ever "
    f"expires, {span_text(IN_MEMORY.completed or timedelta.max)} and "
    f"{span_text(IN_MEMORY.failed or timedelta.max)}."
)
IN_CODE: Final = (
    (
        JobDefaults,
        "`Gantline(defaults=JobDefaults(…))`. `@jobs.job(…)` says otherwise for one type: it takes "
        "`queue`, `timeout` and all from `retry` to `key_scope`, and what only a type has: "
        "`subject`, `idempotency_key`, `priority`, `schedule`, `run_in`, `concurrency`, "
        "`queues`, `max_depth`, `max_depth_per_tenant`, `events`, `result`, `version`, `upgrade`, "
        "`aliases`. "
        "`submit` says otherwise for one job.",
    ),
    (
        WorkerSettings,
        "`Gantline(worker=WorkerSettings(…))` for every worker of the application; "
        "`jobs.running(WorkerSettings(…))` for one in your own process. Of `gantline worker`, "
        "flags, variables and files come first.",
    ),
    (StorageSettings, "`Gantline(storage=StorageSettings(…))`."),
    (Retention, f"`StorageSettings(retention=Retention(…))`. {KEPT}"),
    (AuditSettings, "`Gantline(audit=AuditSettings(…))`."),
    (
        ApiSettings,
        "`jobs.api(settings=ApiSettings(…))`. Three numbers are a share: "
        "`Share(of_principal=…, of_tenant=…, in_process=…)` of `gantline.api.shares`.",
    ),
    (StreamSettings, "`ApiSettings(streams=StreamSettings(…))`."),
    (RateLimits, "`ApiSettings(rate_limits=RateLimits(…))`."),
    (WebhookSettings, "`Gantline(webhooks=WebhookSettings(…))`."),
)


def page() -> str:
    rows = [[code(one.name), code(one.variable), code(one.default), one.help] for one in SETTINGS]
    parts = [
        INTRODUCTION,
        "## In files and variables",
        table(["in a file", "variable", "default", ""], rows),
        "## In variables alone",
        table(["variable", ""], ([code(name), about] for name, about in SECRETS.items())),
        "`NO_COLOR` is obeyed.",
        "## In code",
    ]
    for kind, how in IN_CODE:
        fields = table(["field", "default", ""], fields_of(kind))
        parts += [f"### {kind.__name__}", how, fields]
    parts.append(
        "The options of a store are in its URL: [SQLite](../sqlite.md#the-url), "
        "[PostgreSQL](../postgresql.md#the-url), [Redis](../redis.md#the-url)."
    )
    return markdown.page("Settings", *parts)


def fields_of(kind: type[msgspec.Struct]) -> Iterator[list[str]]:
    """Each field of a struct with its default, and the docstring below it."""
    described = field_docs(kind)
    for field in msgspec.structs.fields(kind):
        yield [code(field.name), _default(field), described.get(field.name, "")]


def field_docs(kind: type) -> dict[str, str]:
    """The docstrings that stand below the fields of a class, and of those that it extends."""
    extended = [one for one in reversed(kind.__mro__) if one.__module__.startswith("gantline")]
    found = [pair for one in extended for pair in DOCUMENTED.findall(getsource(one))]
    return {name: " ".join(text.split()) for name, text in found}


def _default(field: "msgspec.structs.FieldInfo") -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return _shown(field.default_factory())
    return "needed" if field.default is msgspec.NODEFAULT else _shown(field.default)


def _shown(value: Any) -> str:
    match value:
        case timedelta():
            return code(span_text(value))
        case None:
            return "none"
        case frozenset() | tuple() if not value:
            return "none"
        case frozenset():
            return code(", ".join(sorted(map(str, value))))
        case dict():
            return code(value)
        case _ if callable(value):
            return code(value.__name__)
        case Share() as share:
            return code(f"{share.of_principal}, {share.of_tenant}, {share.in_process}")
        case RateLimit() as limit:
            return code(f"{limit.per_second:g}/s:{limit.burst}")
        case msgspec.Struct():
            return code(f"{type(value).__name__}()")
    return code(value)
