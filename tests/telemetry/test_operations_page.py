"""docs/operations.md says what is so."""

import json
import re
from pathlib import Path
from typing import Any

from gantline import Gantline
from gantline.app.settings import SETTINGS
from gantline.telemetry.logs import JsonFormatter
from gantline.telemetry.metrics import METRICS, Metric
from gantline.telemetry.tracing import Attribute
from tests.telemetry.asking import ask

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def test_the_table_of_metrics_is_the_code() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `gantline_")]
    assert rows == [row(metric) for metric in METRICS]


def test_alerts_use_metrics_that_there_are() -> None:
    used = set(re.findall(r"gantline_\w+", blocks("")[-1]))
    assert used <= {metric.name for metric in METRICS}


async def test_readiness_answers_as_shown() -> None:
    shown = json.loads(blocks("json")[0])
    checks = re.findall(r"^\| `(\w+)` \|", PAGE.split("| check | fails when |")[1], re.MULTILINE)
    jobs = Gantline("memory://")
    async with jobs, jobs.running():
        real = (await ask(jobs.health_app(), "/readyz")).json
    assert list(shown["checks"]) == list(real["checks"]) == checks[:5]
    assert checks[5:9] == ["load", "code", "bridge", "broker"]


def test_a_log_line_has_the_keys_shown() -> None:
    import logging

    extra: dict[str, Any] = {
        "correlation_id": "c-1",
        "tenant_id": "acme",
        "job_id": "01a1dea1-3b05-7767-8ee7-94b416aa9bea",
        "job_type": "add",
        "attempt": 1,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }
    made = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "adding 1", **extra})
    real, shown = json.loads(JsonFormatter().format(made)), json.loads(blocks("json")[1])
    assert list(real) == list(shown)
    assert real | {"time": ""} == shown | {"time": ""}


def test_variables_and_attributes_exist() -> None:
    others = {"GANTLINE_TRACE_RUNS", "GANTLINE_API_KEY"}
    known = {setting.variable for setting in SETTINGS} | others
    assert set(re.findall(r"GANTLINE_\w+", PAGE)) <= known
    said = {value for name, value in vars(Attribute).items() if name.isupper()}
    for attribute in said:
        assert attribute in PAGE or attribute.removesuffix("type") + "name" in said


def test_the_python_of_the_page_runs() -> None:
    names: dict[str, Any] = {"jobs": Gantline("memory://")}
    for block in blocks("python"):
        exec(block, names)  # noqa: S102  # our own page
    assert names["web"].routes
