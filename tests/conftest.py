"""Servers that tests share; and every skip is a failure when CI=true: what did not run proves
nothing."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that all tests of this process share. Who wants to kill one starts its own."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """Likewise."""
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store of each kind is made at its first use."""
    name = f"w{uuid4().hex}"
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/gantline.db"
        case "redis":
            redis: RedisServer = request.getfixturevalue("redis")
            return redis.url(prefix=name)
        case _:
            server: PostgresServer = request.getfixturevalue("postgres")
            return server.url(schema=name)


hypothesis.settings.register_profile("quick", max_examples=10)

# What starts servers, browsers or other processes, or is long by itself.
_NOT_QUICK = (
    *("bridge", "cli", "client", "examples", "fuzz", "model", "postgres", "redis", "test_wakeup_"),
    *("chaos", "history", "proving", "test_mutants.py", "test_seeded_bugs.py"),
    "test_simulation.py",
    *("api/streams", "api/test_leaks.py", "api/test_bad_input.py", "auth/test_jwt.py"),
    *("auth/test_documentation.py", "webhooks/test_documentation.py", "webhooks/test_signing.py"),
    *("webhooks/test_concurrency.py", "webhooks/test_delivering.py", "webhooks/test_guard.py"),
    *("webhooks/test_policy.py", "api/test_openapi.py"),
    *("test_base_exceptions.py", "test_broken_stores.py", "test_docs", "test_documentation.py"),
    *("test_events_page.py", "test_hot_path.py", "test_oracle.py", "test_pages.py", "test_process"),
    *("test_schedule", "test_stopping.py", "test_supervision.py", "test_tutorial.py"),
    *("test_typing.py", "test_worker_processes.py", "telemetry/test_fleet.py"),
)
_SERVERS = ("postgres", "redis", "rabbitmq", "chromium")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what needs no server or process")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        hypothesis.settings.load_profile("quick")
        on_memory = {_rule(item) for item in items if "memory" in _case(item)}
        quick = [item for item in items if _is_quick(item, on_memory)]
        config.hook.pytest_deselected(items=list(set(items) - set(quick)))
        items[:] = quick


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--quick") or collection_path == Path(__file__).parent:
        return None
    path = collection_path.relative_to(Path(__file__).parent).as_posix()
    return path.startswith(_NOT_QUICK) or None


def _is_quick(item: pytest.Item, on_memory: set[str]) -> bool:
    needed = (*getattr(item, "fixturenames", ()), item.name)
    has_server = any(server in name for name in needed for server in (*_SERVERS, "process"))
    # The conformance suite holds SQLite to the same rules; the rest need not run on both.
    is_repeated = "sqlite" in _case(item) and _rule(item) in on_memory
    return not (has_server or is_repeated or item.get_closest_marker("xdist_group"))


def _rule(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0] if "test_conformance" not in item.nodeid else item.nodeid


def _case(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[2]


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    # pytest reports an expected failure as a skip too; `wasxfail` tells the two apart.
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} may not be skipped in CI. {reason}"


# tryfirst: outermost, so it sees the report after pytest has settled what is an xfail.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report
