"""A RabbitMQ broker of one's own."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from uuid import uuid4

from tests.servers.missing import ServerMissing
from tests.servers.postgres import free_port

# Not the one in the PATH, which insists on the system's own folders.
_PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PATIENCE_SECONDS: Final = 90


class RabbitServer:
    """Started at once, with a port mapper of its own; `stop` removes its folder."""

    def __init__(self) -> None:
        if not _PROGRAM.exists():
            raise ServerMissing("there is no RabbitMQ here (Debian's rabbitmq-server)")
        self.folder = Path(mkdtemp(prefix="gantline-rabbitmq-"))
        self.port = free_port()
        self._environment = self._prepare()
        self._mapper = self._spawn("epmd", "-address", "127.0.0.1")
        self._broker: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        self._broker = self._spawn(str(_PROGRAM))
        _wait_for(self.port, self._broker, self.folder / "out")

    def halt(self) -> None:
        """Let it shut down in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it stand still, as a host that hangs does."""
        if self._broker is not None:
            self._broker.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._broker is not None:
            self._broker.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        self._mapper.kill()
        self._mapper.wait()
        shutil.rmtree(self.folder)

    def _prepare(self) -> dict[str, str]:
        (self.folder / "plugins").write_text("[].\n")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.port}\nlog.file.level = warning\n"
        )
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(uuid4().hex)
        cookie.chmod(0o400)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_FLAGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_NODENAME": f"gantline-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            # So that the process we start is the broker itself, and not a shell around it.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "out").open("ab") as out:
            return subprocess.Popen(
                command,
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _end(self, how: signal.Signals) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.send_signal(how)
            broker.wait(_PATIENCE_SECONDS)


def _wait_for(port: int, broker: subprocess.Popen[bytes], out: Path) -> None:
    """Until it greets: the port is open before the broker can serve it."""
    for _ in range(_PATIENCE_SECONDS * 5):
        try:
            broker.wait(0.2)
        except subprocess.TimeoutExpired:
            if _greets(port):
                return
        else:
            break
    raise RuntimeError(f"RabbitMQ did not start: {out.read_text(errors='replace')[-2000:]}")


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            return bool(probe.recv(1))
    except OSError:
        return False
