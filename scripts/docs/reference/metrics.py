"""Every metric and every attribute of a span."""

from typing import Final

from gantline.telemetry.metrics import BOUNDS, OF_A_PROCESS, OF_THE_STORE, Metric
from gantline.telemetry.tracing import Attribute
from scripts.docs import markdown
from scripts.docs.markdown import code, table

INTRODUCTION: Final = """\
What is measured; how it is served, what to alert on and how the numbers of several processes
are added up is described in [watching it at work](../operations.md#metrics)."""


def page() -> str:
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS)
    attributes = [[code(name)] for key, name in vars(Attribute).items() if not key.startswith("_")]
    return markdown.page(
        "Metrics and spans",
        INTRODUCTION,
        "## Of a process",
        "Add them up over processes.",
        _table(OF_A_PROCESS),
        f"The buckets of histograms end at {bounds} seconds.",
        "## Of the store",
        "The same on every page: take the maximum, never the sum.",
        _table(OF_THE_STORE),
        "## Attributes of spans",
        "Of `send <type>` and `process <type>`; see [traces](../operations.md#traces).",
        table(["attribute"], attributes),
    )


def _table(metrics: tuple[Metric, ...]) -> str:
    rows = (
        [code(one.name), one.kind, ", ".join(map(code, one.labels)), one.help] for one in metrics
    )
    return table(["metric", "kind", "labels", ""], rows)
