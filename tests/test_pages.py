"""What the pages of the documentation say is so: their code runs, their commands show that."""

import configparser
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it has no stubs

import gantline
from gantline import Backoff, JobDefaults, SubmitOptions, WorkerSettings
from gantline.api import ApiSettings
from gantline.api.documents import ScaleDocument
from gantline.contract.capabilities import NO_HANDLER_GRACE
from gantline.contract.job import DEFAULT_PRIORITY
from gantline.contract.payload import DEFAULT_RESULT_LIMIT
from gantline.contract.policy import Policy
from gantline.worker.handler import DEFAULT_TIMEOUT
from gantline.worker.lease_keeper import EXIT_LOOP_BLOCKED
from tests.api.conftest import asker_of
from tests.test_documentation import DOCS, README, Shell, blocks, modules, page
from tests.walkthrough import Walkthrough, free_port

pytestmark = pytest.mark.timeout(120)

FOLDERS = ("concepts", "guides", "coming-from")
FILES = [DOCS / "index.md", *(file for name in FOLDERS for file in sorted((DOCS / name).iterdir()))]
PAGES = [file.relative_to(DOCS).as_posix() for file in FILES]
WITH_COMMANDS = [name for name in PAGES if blocks(page(name), "console")]


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_the_commands_of_a_page_do_what_it_shows(name: str, tmp_path: Path) -> None:
    with Walkthrough(Shell(tmp_path)) as reader:
        reader.follow(page(name))


@pytest.mark.parametrize("name", sorted(set(PAGES) - set(WITH_COMMANDS)))
def test_the_code_of_a_page_can_be_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in modules(page(name)).items():
        exec(compile(text, file, "exec"), {"__name__": file.removesuffix(".py")})  # noqa: S102  # our own


def test_the_page_of_declarations_lists_every_option_with_its_default() -> None:
    section = page("guides/declaring.md").partition("## All options")[2]
    rows = re.findall(r"^\| `(\w+)`( \*)? \| (.+?) \|", section, re.MULTILINE)
    assert sorted(name for name, *_ in rows) == sorted(gantline.JobOptions.__annotations__)
    shared = {name for name, is_shared, _ in rows if is_shared}
    assert shared == JobDefaults().of_types.keys()
    defaults = {name: default for name, _, default in rows}
    rules = JobDefaults()
    assert (rules.timeout, rules.hold_key) == (timedelta(minutes=10), timedelta(days=7))
    assert (defaults["timeout"], defaults["hold_key"]) == ("10 minutes", "7 days")
    for name, default in {
        "queue": rules.queue,
        "priority": DEFAULT_PRIORITY,
        "classify": rules.classify,
        "max_crashes": rules.max_crashes,
        "max_snoozes": rules.max_snoozes,
    }.items():
        assert defaults[name] == f"`{default!r}`".replace("'", '"')


def test_the_page_of_declarations_names_every_option_of_a_submit() -> None:
    section = page("guides/declaring.md").partition("The options are")[2].partition("##")[0]
    assert set(re.findall(r"`(\w+)`", section)) == {*SubmitOptions.__annotations__, "connection"}


def test_a_store_is_held_to_the_rules_as_is_told(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write(modules(page("guides/writing-a-store.md")))
    # Every rule holds for the memory store, as its own test shows; here it is about the snippet.
    shown = shell.run(
        "python -m pytest -q -k 'inserting or (every_order and another)' test_my_store.py"
    )
    assert " passed" in shown.splitlines()[-1], shown


async def test_the_fastapi_application_answers_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "web"}
    code = modules(page("guides/fastapi.md"))["web.py"]
    exec(compile(code, "web.py", "exec"), names)  # noqa: S102  # our own
    documented = names["app"].openapi()["paths"]
    assert all("202" in path["post"]["responses"] for path in documented.values() if "post" in path)
    ada, bob = ({"authorization": f"Bearer secret-of-{name}"} for name in ("ada", "bob"))
    async with names["jobs"], asker_of(names["app"]) as ask:
        client = ask._client
        for path in ("/documents/d1/analysis", "/documents/d2/everything", "/checked/d3"):
            accepted = await client.post(path, headers=ada)
            assert accepted.status_code == 202, accepted.text
            status_url = accepted.json()["statusUrl"]
            assert (await client.get(status_url, headers=ada)).status_code == 200
            assert (await client.get(status_url, headers=bob)).status_code == 403
            mine = await client.get(f"/analyses/{accepted.json()['jobId']}", headers=ada)
            assert (mine.status_code, mine.json()) == (200, "Queued")
            assert (await client.get(str(mine.url), headers=bob)).status_code == 404
        assert (await client.post("/checked/d4?kind=gossip", headers=ada)).status_code == 400
        assert (await client.post("/documents/d1/analysis")).status_code == 401
        await names["jobs"].switches.disable_type("analyze")
        refused = await client.post("/documents/d5/everything", headers=ada)
        assert refused.json()["errorCode"] == "JOB_TYPE_DISABLED"


def test_the_manifests_can_be_read_and_have_the_fields_that_matter() -> None:
    found = [
        document
        for block in blocks(page("guides/deploying.md"), "yaml")
        for document in yaml.safe_load_all(block)
    ]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    worker = by_name["Deployment", "shop-worker"]["spec"]["template"]
    (container,) = worker["spec"]["containers"]
    drain = container["command"][container["command"].index("--drain") + 1]
    assert worker["spec"]["terminationGracePeriodSeconds"] > int(drain.removesuffix("s"))
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    scaled = by_name["ScaledObject", "shop-worker"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == worker["metadata"]["labels"]["app"]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["valueLocation"] in ScaleDocument.__struct_fields__
    assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in by_name


def test_the_units_can_be_read_and_stop_later_than_they_drain() -> None:
    worker, api = (_unit(block) for block in blocks(page("guides/deploying.md"), "ini"))
    command = worker["Service"]["ExecStart"].split()
    drain = command[command.index("--drain") + 1].removesuffix("s")
    assert int(worker["Service"]["TimeoutStopSec"]) > int(drain)
    for unit in (worker, api):
        assert unit["Service"]["Restart"] == "always"
        assert "shop:jobs" in unit["Service"]["ExecStart"].split()


def _unit(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    return parser


def _deployed_commands() -> Iterator[list[str]]:
    text = page("guides/deploying.md")
    for block in blocks(text, "ini"):
        yield shlex.split(_unit(block)["Service"]["ExecStart"])
    for block in (*blocks(text, "yaml"), *blocks(page("operations.md"), "yaml")):
        for document in yaml.safe_load_all(block):
            pod = document.get("spec", {}).get("template", {}).get("spec", document)
            yield from (one["command"] for one in pod.get("containers", ()))


@pytest.mark.parametrize("command", list(_deployed_commands()), ids=" ".join)
def test_what_units_and_manifests_start_starts_and_stops(
    command: list[str], tmp_path: Path
) -> None:
    """With ports of its own; everything else as it is written."""
    shell = Shell(tmp_path)
    shell.write(modules(README))
    pepper = shell.run("gantline key pepper").split()[-1]
    words = ["gantline", *command[1:]]
    ports = {"8080": str(free_port()), "8081": str(free_port())}
    words = [re.sub("|".join(ports), lambda found: ports[found[0]], word) for word in words]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=shell.environment | {"PYTHONUNBUFFERED": "1", "GANTLINE_KEY_PEPPER": f"1:{pepper}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        started = "Working on" if "worker" in words else "Serving"
        shown = []
        has_started = False
        for line in process.stdout:
            shown.append(line)
            if started in line and not has_started:
                has_started = True  # a second signal would end it at once
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, "".join(shown)


def test_every_file_of_the_tour_is_there() -> None:
    text = page("architecture.md")
    files = re.findall(r"`([\w/]+\.(?:py|lua))`", text)
    folders = re.findall(r"`(\w+)/`", text)
    assert len(files) > 20
    source = Path(gantline.__file__).parent
    assert [name for name in [*files, *folders] if not (source / name).exists()] == []
    there = {file.parent.name for file in source.glob("*/__init__.py")}
    assert there - {*folders} == set()


def test_the_numbers_are_those_of_the_code() -> None:
    lifecycle, leases, keys = (
        page(f"concepts/{name}.md") for name in ("lifecycle", "leases", "idempotency")
    )
    policy, worker = Policy(), WorkerSettings()
    assert f"up to {DEFAULT_RESULT_LIMIT // 1024} KiB" in lifecycle
    assert f"Crashes have a budget of their own ({policy.max_crashes})" in lifecycle
    assert f"Snoozes have their own too ({policy.max_snoozes})" in lifecycle
    assert f"`maxAttempts` is {policy.retry.attempts} unless" in lifecycle
    assert f"knows its type for {NO_HANDLER_GRACE.total_seconds() / 60:g} minutes" in lifecycle
    assert f"for {worker.lease.total_seconds():g} seconds (`GANTLINE_LEASE_SECONDS`)" in leases
    assert f"`timeout` ({DEFAULT_TIMEOUT.total_seconds() / 60:g} minutes by default)" in leases
    assert f"for the drain ({worker.drain.total_seconds():g} seconds)" in leases
    assert policy.hold_key.days == 7
    assert "for seven days after it was completed" in keys
    assert f"for {ApiSettings().hold_request_key_hours:g} hours" in keys
    assert f"at most {Backoff().cap_seconds:g}" in page("concepts/retries.md")
    assert f"exit code {EXIT_LOOP_BLOCKED}" in page("guides/deploying.md")
