"""The runtime port: all of time, chance, ids and threads goes through it."""

import ast
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from datetime import UTC, datetime
from pathlib import Path

import gantline
from gantline.contract.clock import SystemClock
from gantline.contract.job_id import new_job_id
from gantline.runtime import Machine, hosted_by, jittered, monotonic, new_uuid, random, start_thread

_SOURCE = Path(gantline.__file__).parent
_PORT = _SOURCE / "runtime.py"
_NOT_OURS = {"time", "random", "uuid4", "urandom", "Thread", "ThreadPoolExecutor"}
_ALLOWED = {
    # A deadline of a file that another program has made.
    ("worker/session_lock.py", "time"),
    # Sleeping in a thread of its own, and between two looks at files and processes.
    ("stores/sqlite/connection.py", "time"),
    ("cli/supervision/reloader.py", "time"),
    ("cli/supervision/supervisor.py", "time"),
    ("cli/supervision/children.py", "time"),
    # What a seed gives is no chance.
    ("proving/faults.py", "random"),
}


class Simulated(Machine):
    """A host whose time stands still and whose chance is known."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    def time_ns(self) -> int:
        return 1_893_456_000 * 10**9

    def monotonic(self) -> float:
        return 42.0

    def random(self) -> float:
        return 1.0

    def random_bytes(self, count: int) -> bytes:
        return b"\7" * count

    def start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        self.started.append(name)
        return threading.Thread()

    def thread_pool(self, threads: int, name: str) -> Executor:
        raise NotImplementedError


def test_a_simulated_host_gives_all_of_time_chance_ids_and_threads() -> None:
    host = Simulated()
    with hosted_by(host):
        assert (monotonic(), random(), jittered(10.0)) == (42.0, 1.0, 12.5)
        assert SystemClock().now() == datetime(2030, 1, 1, tzinfo=UTC)
        assert SystemClock().monotonic() == 42.0
        assert new_uuid() == new_uuid()
        assert new_job_id() == new_job_id()
        start_thread(lambda: None, "one")
    assert host.started == ["one"]
    assert new_uuid() != new_uuid()
    assert new_job_id() != new_job_id()


def test_ids_of_runs_are_random_uuids_of_version_4() -> None:
    ids = {new_uuid() for _ in range(1000)}
    assert len(ids) == 1000
    assert {one.version for one in ids} == {4}
    assert {one.variant for one in ids} == {"specified in RFC 4122"}


def test_nothing_else_reads_time_chance_ids_or_threads() -> None:
    """Passwords and keys come from `secrets`, which a simulation leaves as it is."""
    found = {
        (path.relative_to(_SOURCE).as_posix(), name)
        for path in _SOURCE.rglob("*.py")
        if path != _PORT and "testing" not in path.relative_to(_SOURCE).parts
        for name in _read_from_the_host(path)
    }
    assert found <= _ALLOWED


def _read_from_the_host(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name in ("time", "random"))
            case ast.ImportFrom(module="time" | "random" as module):
                yield module
            case ast.ImportFrom(module="uuid" | "os" | "threading" | "concurrent.futures"):
                yield from (one.name for one in node.names if one.name in _NOT_OURS)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="datetime"), attr="now")):
                yield "datetime.now"
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os" | "uuid" | "threading"), attr=name)
            ) if name in _NOT_OURS:
                yield name
            case _:
                pass
