"""Settings: flag before environment before gantline.toml before pyproject.toml before default."""

from pathlib import Path

import pytest

from gantline.app.settings import Settings
from gantline.cli.options import Recycle
from gantline.cli.output import Output
from gantline.cli.session import Cli, load_app
from gantline.cli.work import _settings
from tests.cli.conftest import Place, assert_refused

ORDER = ["default", "pyproject.toml", "gantline.toml", "GANTLINE_TENANT", "flag"]

APPLICATION = 'from gantline import Gantline\njobs = Gantline()\njobs.job("tidy")(lambda: None)\n'


def shown(place: Place, name: str, *words: str) -> tuple[str, str]:
    (row,) = [row for row in place.json(*words, "config", "show") if row["setting"] == name]
    return row["value"], row["source"]


@pytest.mark.parametrize("highest", range(len(ORDER)), ids=ORDER)
def test_the_highest_source_wins_and_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch, highest: int
) -> None:
    words: tuple[str, ...] = ()
    if highest >= 1:
        Path("pyproject.toml").write_text('[tool.gantline]\ntenant = "pyproject.toml"\n')
    if highest >= 2:
        Path("gantline.toml").write_text('tenant = "gantline.toml"\n')
    if highest >= 3:
        monkeypatch.setenv("GANTLINE_TENANT", "GANTLINE_TENANT")
    if highest >= 4:
        words = ("--tenant", "flag")
    assert shown(place, "tenant", *words) == (ORDER[highest], ORDER[highest])


def test_what_gantline_toml_does_not_say_is_taken_from_pyproject_toml(place: Place) -> None:
    Path("pyproject.toml").write_text('[tool.gantline]\napp = "shop:jobs"\ntenant = "a"\n')
    Path("gantline.toml").write_text('tenant = "b"\n')
    assert shown(place, "tenant") == ("b", "gantline.toml")
    assert shown(place, "app") == ("shop:jobs", "pyproject.toml")


def test_the_settings_decide_which_store_is_used(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gantline.toml").write_text('store = "sqlite:///from-file.db"\n')
    place.submit("index", "1")
    monkeypatch.setenv("GANTLINE_STORE", "sqlite:///from-variable.db")
    place.submit("index", "1")
    place.json("--store", "sqlite:///from-flag.db", "job", "submit", "index", "1")
    for name in ("from-file.db", "from-variable.db", "from-flag.db"):
        assert Path(name).exists()
    assert not place.database.exists()


def test_every_setting_is_shown_with_its_variable_and_help(place: Place) -> None:
    rows = place.json("config", "show")
    names = [
        "store",
        "url",
        "trigger",
        "outbox",
        "bridge",
        "app",
        "tenant",
        "queues",
        "slots",
        "claim_batch",
        "lease_seconds",
        "renew_seconds",
        "poll_seconds",
        "drain_seconds",
        "processes",
        "health",
        "live_path",
        "ready_path",
        "require_broker",
        "subject_required",
        "allowed_hosts",
        "trusted_proxies",
        "rate_limit_per_key",
        "rate_limit_per_tenant",
        "schedules_per_tenant",
        "waiting_per_tenant",
        "read_cache_seconds",
        "webhook_allow",
        "webhook_ports",
        "webhook_source",
        "webhook_disable_days",
        "log_format",
        "history",
    ]
    assert [row["setting"] for row in rows] == names
    for row in rows:
        assert row.keys() == {"setting", "value", "source", "variable", "help"}
        assert row["variable"] == f"GANTLINE_{row['setting'].upper()}"
    assert not place.database.exists()


@pytest.mark.parametrize(
    ("name", "url", "said"),
    [
        ("store", "postgresql://me:hush@host/db", "postgresql://…@host/db"),
        (
            "store",
            "postgresql://host/db?password=hush&schema=a",
            "postgresql://host/db?password=…&schema=a",
        ),
        ("trigger", "amqp://me:hush@host/", "amqp://…@host/"),
    ],
)
def test_a_password_is_not_shown(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, url: str, said: str
) -> None:
    monkeypatch.setenv(f"GANTLINE_{name.upper()}", url)
    assert shown(place, name) == (said, f"GANTLINE_{name.upper()}")


def test_the_trigger_of_the_settings_is_the_one_that_is_used(place: Place) -> None:
    Path("jobs_here.py").write_text("from gantline import Gantline\njobs = Gantline('memory://')\n")
    Path("gantline.toml").write_text('app = "jobs_here:jobs"\ntrigger = "http://host"\n')
    assert_refused(place.run("worker"), 5, "RabbitMQ", "amqp://")


def test_a_job_is_submitted_though_the_trigger_is_wrong(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_TRIGGER", "http://host")
    result = place.run("job", "submit", "index")
    assert (result.exit_code, "they poll" in result.stderr) == (0, True)
    assert len(place.json("job", "list")) == 1


def test_what_the_code_says_of_its_workers_comes_behind_variables_and_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("working_so.py").write_text(
        "from datetime import timedelta\n"
        "from gantline import Gantline, WorkerSettings\n"
        "long = timedelta(minutes=2)\n"
        "jobs = Gantline(worker=WorkerSettings(lease=long, poll=long, drain=long, slots=7))\n"
    )
    Path("gantline.toml").write_text('app = "working_so:jobs"\npoll_seconds = 3\n')
    monkeypatch.setenv("GANTLINE_DRAIN_SECONDS", "4")
    assert shown(place, "lease_seconds") == ("120", "code")
    assert shown(place, "slots") == ("7", "code")
    assert shown(place, "poll_seconds") == ("3", "gantline.toml")
    assert shown(place, "drain_seconds") == ("4", "GANTLINE_DRAIN_SECONDS")
    assert shown(place, "claim_batch") == ("", "default")
    cli = Cli(Settings({}, Path()), Output("json"))
    settings = _settings(cli, load_app("working_so:jobs"), None, None, Recycle())
    assert (settings.lease.total_seconds(), settings.slots) == (120, 7)
    assert (settings.poll.total_seconds(), settings.drain.total_seconds()) == (3, 4)
    assert settings.queues == {"default": 10}


TENANT_IN_CODE = """
from gantline import Gantline, JobDefaults, WorkerSettings

jobs = Gantline(defaults=JobDefaults(tenant="acme"), worker=WorkerSettings(queues={"docs": 3}))

@jobs.job("index")
async def index(number: int) -> None: ...
"""


def test_the_tenant_and_the_queues_of_the_code_are_those_of_the_commands(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("of_acme.py").write_text(TENANT_IN_CODE)
    monkeypatch.setenv("GANTLINE_APP", "of_acme:jobs")
    assert shown(place, "tenant") == ("acme", "code")
    assert shown(place, "queues") == ("docs:3", "code")
    job_id = place.submit("index", "1")
    assert place.json("job", "get", job_id)["tenantId"] == "acme"
    assert len(place.json("job", "list")) == 1
    assert place.json("--tenant", "default", "job", "list") == []
    assert shown(place, "tenant", "--tenant", "default") == ("default", "flag")
    monkeypatch.setenv("GANTLINE_APP", "nosuch:jobs")
    unknown = place.run("--store", "sqlite:///gantline.db", "job", "list")
    assert (unknown.exit_code, unknown.stderr.count("Warning: the tenant that")) == (0, 1)
    assert "No jobs found for the tenant 'default'" in unknown.stderr


@pytest.mark.parametrize("name", ["gantline.toml", "pyproject.toml"])
def test_an_unknown_setting_is_refused_with_the_known_ones(place: Place, name: str) -> None:
    head = "[tool.gantline]\n" if name == "pyproject.toml" else ""
    Path(name).write_text(f'{head}tennant = "a"\n')
    assert_refused(place.run("config", "show"), 2, name, "tennant", "lease_seconds")


@pytest.mark.parametrize("name", ["gantline.toml", "pyproject.toml"])
@pytest.mark.parametrize("text", [b"tenant = ", b"\xff\xfe", b"[", b"a = 1\na = 2\n"])
def test_a_file_that_is_no_toml_is_refused_by_name(place: Place, name: str, text: bytes) -> None:
    Path(name).write_bytes(text)
    assert_refused(place.run("job", "list"), 2, name)


@pytest.mark.parametrize("text", ["tool = 3\n", '[tool]\ngantline = "x"\n', "[[tool]]\na = 1\n"])
def test_a_pyproject_of_another_shape_is_refused_by_name(place: Place, text: str) -> None:
    Path("pyproject.toml").write_text(text)
    assert_refused(place.run("job", "list"), 2, "pyproject.toml")


@pytest.mark.parametrize("text", ['tenant = ["a"]\n', "store = true\n", "[queues]\ndefault = 3\n"])
def test_a_setting_of_another_type_is_refused_by_name(place: Place, text: str) -> None:
    Path("gantline.toml").write_text(text)
    assert_refused(place.run("job", "list"), 2, "gantline.toml", text.split()[0].strip("[]"))


def test_a_number_in_a_file_needs_no_quotes(place: Place) -> None:
    Path("gantline.toml").write_text("lease_seconds = 5\npoll_seconds = 0.5\n")
    assert shown(place, "lease_seconds") == ("5", "gantline.toml")
    assert shown(place, "poll_seconds") == ("0.5", "gantline.toml")


def test_a_pyproject_without_our_table_says_nothing(place: Place) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "shop"\n')
    assert shown(place, "tenant") == ("default", "default")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("GANTLINE_PROCESSES", "many"),
        ("GANTLINE_PROCESSES", "nan"),
        ("GANTLINE_PROCESSES", "inf"),
        ("GANTLINE_PROCESSES", "0"),
        ("GANTLINE_PROCESSES", "-2"),
        ("GANTLINE_PROCESSES", "1.5"),
        ("GANTLINE_LEASE_SECONDS", "0"),
        ("GANTLINE_LEASE_SECONDS", "-1"),
        ("GANTLINE_LEASE_SECONDS", "nan"),
        ("GANTLINE_POLL_SECONDS", "inf"),
        ("GANTLINE_POLL_SECONDS", "-1"),
        ("GANTLINE_DRAIN_SECONDS", "soon"),
        ("GANTLINE_DRAIN_SECONDS", "-1"),
        ("GANTLINE_RENEW_SECONDS", "0"),
        ("GANTLINE_RENEW_SECONDS", "nan"),
        ("GANTLINE_RENEW_SECONDS", "20"),
        ("GANTLINE_SLOTS", "0"),
        ("GANTLINE_SLOTS", "nan"),
        ("GANTLINE_CLAIM_BATCH", "0"),
        ("GANTLINE_CLAIM_BATCH", "1.5"),
        ("GANTLINE_QUEUES", "docs:many"),
        ("GANTLINE_QUEUES", "docs:0"),
        ("GANTLINE_QUEUES", ":3"),
        ("GANTLINE_QUEUES", ","),
    ],
)
def test_a_worker_refuses_a_setting_out_of_range_before_it_starts(
    place: Place, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    Path("shop.py").write_text(APPLICATION)
    monkeypatch.setenv(variable, text)
    with (
        place.process("worker", "shop:jobs", "--drain", "0")
        if "DRAIN" not in variable
        else (place.process("worker", "shop:jobs")) as program
    ):
        place.eventually(
            lambda: program.process.poll() is not None or "Working on" in program.stderr,
            "the worker ends or starts",
        )
        assert "Working on" not in program.stderr, "the worker started"
        assert program.exit_code() == 2, program.stderr
        # By the name that it was set by.
        assert variable in program.stderr or variable == "GANTLINE_QUEUES", program.stderr
        assert len(program.stderr.splitlines()) == 1, program.stderr
