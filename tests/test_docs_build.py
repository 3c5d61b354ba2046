"""The documentation is built as `make docs` does it, and tells all that there is."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import gantline
from gantline.api.problems import KINDS, ApiCode
from gantline.app.settings import SETTINGS
from gantline.contract.errors import Code
from gantline.contract.status import TRANSITIONS, DerivedState, Event, JobStatus, Reason
from gantline.telemetry.metrics import METRICS
from gantline.telemetry.tracing import Attribute
from scripts.docs import chart, killed_worker, leftovers, lifecycle, links
from scripts.docs import made as made_tables
from scripts.docs.__main__ import build, pages_nobody_finds
from scripts.docs.reference.command_line import commands
from scripts.docs.reference.errors import OF_RUNS, all_errors
from scripts.docs.staging import REPOSITORY, linked, made_pages

SOURCES = sorted((REPOSITORY / "src").rglob("*.py"))


@cache
def made(name: str) -> str:
    return made_pages()[f"reference/{name}.md"]


def untold(names: Iterable[str], text: str) -> list[str]:
    return [name for name in names if f"`{name}" not in text]


def test_it_is_built_without_a_warning_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    assert build(tmp_path / "docs") == []
    site = tmp_path / "docs" / "site"
    assert (site / "search.json").stat().st_size > 100_000
    told = re.findall(r"^- \[.+\]\((.+?)\)", (site / "llms.txt").read_text(), re.MULTILINE)
    assert "start.md" in told
    assert [path for path in told if not (site / path).is_file()] == []
    assert len((site / "llms-full.txt").read_text()) > 100_000


def test_what_leads_nowhere_or_is_fetched_from_elsewhere_is_found(tmp_path: Path) -> None:
    text = (
        '<a href="b.html#there"></a><a href="b.html#gone"></a><a href="c.html"></a><img src="{}">'
    )
    (tmp_path / "a.html").write_text(text.format("https://elsewhere.example/x.png"))
    (tmp_path / "b.html").write_text('<h2 id="there"></h2><a href="https://example.com"></a>')
    assert links.faults(tmp_path) == [
        "a.html fetches https://elsewhere.example/x.png",
        "a.html: b.html#gone leads nowhere",
        "a.html: c.html leads nowhere",
    ]


def test_markdown_that_is_shown_as_text_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text("<p>It is 1. and <code>- x</code> or <code>**</code></p>")
    (tmp_path / "list.html").write_text("<p>A list\n- of one</p>")
    (tmp_path / "bold.html").write_text("<p>It is **bold</p>")
    assert [fault.split()[0] for fault in leftovers.faults(tmp_path)] == ["bold.html", "list.html"]


def test_a_page_that_the_menu_does_not_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# Home")
    (tmp_path / "tutorial.md").write_text("# Tutorial")
    (tmp_path / "stray.md").write_text("# Stray")
    (found,) = pages_nobody_finds(tmp_path)
    assert found.startswith("stray.md is not in the navigation")


@pytest.mark.parametrize(
    ("file", "written", "in_the_site"),
    [
        ("docs/guides/a.md", "[b](../http.md#limits)", "[b](../http.md#limits)"),
        ("docs/guides/a.md", "[the README](../../README.md)", "[the README](../start.md)"),
        ("docs/examples/a.md", "[main.py](../../src/gantline/cli/main.py)", "`main.py`"),
        ("docs/a.md", "[b](https://example.com/x.md)", "[b](https://example.com/x.md)"),
        ("README.md", "![b](docs/images/b.png)", "![b](images/b.png)"),
        (
            "README.md",
            "[rules](CONTRIBUTING.md#how-to-test)",
            "[rules](contributing.md#how-to-test)",
        ),
        ("README.md", "[gone](nowhere.md)", "[gone](nowhere.md)"),
    ],
)
def test_links_of_the_repository_lead_to_the_pages_of_the_site(
    file: str, written: str, in_the_site: str
) -> None:
    assert linked(written, Path(file)) == in_the_site


def test_every_command_is_told() -> None:
    text = made("command-line")
    for words, _ in commands():
        assert re.search(rf"^##+ gantline {' '.join(words)}$", text, re.MULTILINE), words


def test_every_setting_and_every_variable_is_told() -> None:
    text = made("settings")
    assert untold([one.name for one in SETTINGS], text) == []
    read = {
        name
        for file in SOURCES
        for name in re.findall(r"\bGANTLINE_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8"))
    }
    assert untold(sorted(read), text) == []


def test_every_status_state_event_and_reason_is_told() -> None:
    text = made("statuses")
    assert untold([*JobStatus, *DerivedState, *Reason], text) == []
    assert untold([f"job.{event}" for event in Event], made("events")) == []


def test_every_error_code_is_told() -> None:
    text = made("errors")
    codes = [*Code, *ApiCode, *KINDS, *(str(error.code) for error in all_errors())]
    assert untold(codes, text) == []
    assert all(name in set(Code) or _is_in_the_code(name) for name in OF_RUNS)


def _is_in_the_code(name: str) -> bool:
    return any(f'"{name}"' in file.read_text(encoding="utf-8") for file in SOURCES)


def test_every_metric_and_attribute_is_told() -> None:
    text = made("metrics")
    attributes = [name for key, name in vars(Attribute).items() if not key.startswith("_")]
    assert untold([*(metric.name for metric in METRICS), *attributes], text) == []


def test_every_public_name_is_told() -> None:
    text = made("python")
    for name in set(gantline.__all__) - {"__version__"}:
        assert f"\n### {name}\n" in text, name


def test_the_picture_of_the_lifecycle_shows_every_move() -> None:
    drawn = lifecycle.drawing()
    kept = lifecycle.PICTURE.read_text(encoding="utf-8")
    assert kept == drawn, "draw it anew: python -m scripts.docs.lifecycle"
    assert set(lifecycle.WAYS) == {(start, end) for start, _, end in TRANSITIONS}
    for _, event, _ in TRANSITIONS:
        assert event.value.replace("_", " ") in drawn


def test_the_chart_shows_what_was_measured_and_gantline_in_every_panel() -> None:
    kept = chart.PICTURE.read_text(encoding="utf-8")
    assert kept == chart.drawing(), "draw it anew: python -m scripts.docs.chart"
    assert kept.count(">Gantline<") == len(chart.PANELS)


def test_the_tables_in_pages_are_those_of_the_code_and_the_measurements() -> None:
    pages = [file.read_text(encoding="utf-8") for file in (REPOSITORY / "docs").rglob("*.md")]
    assert {name for text in pages for name in made_tables.BLOCK.findall(text)} == set(
        made_tables.MADE
    )
    for text in pages:
        assert made_tables.filled(text) == text, "write it anew: python -m scripts.docs.made"


def test_the_picture_of_the_killed_worker_is_light_and_shows_its_end() -> None:
    kept = killed_worker.PICTURE.read_text(encoding="utf-8")
    assert len(kept) < 150_000
    assert re.search(r"kill -9 .*Killed.*completed in .*Completed.*crashed", kept, re.DOTALL)
    odd = killed_worker.drawing([killed_worker.Shown("$ a <b> & c" + " word" * 40, "typed")])
    assert "a &lt;b&gt; &amp; c" in odd
    assert odd.count("<text") == 3
