"""A PgBouncer of one's own in front of a PostgreSQL server, in transaction mode."""

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.servers.missing import ServerMissing
from tests.servers.postgres import PostgresServer, free_port, give_away, server_user

_POOL_SIZE: Final = 12
_PATIENCE_SECONDS: Final = 10
_SETTINGS: Final = """
[databases]
* = host=127.0.0.1 port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/log
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 1000
"""


class PgBouncer:
    """Started at once. Many clients share few connections, another one for every transaction."""

    def __init__(self, server: PostgresServer) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise ServerMissing("there is no pgbouncer here")
        self.folder = Path(mkdtemp(prefix="gantline-pgbouncer-"))
        self._server = server
        self.port = free_port()
        (self.folder / "users").write_text('"gantline" ""\n')
        (self.folder / "settings").write_text(
            _SETTINGS.format(
                server_port=server.port,
                port=self.port,
                folder=self.folder,
                pool_size=_POOL_SIZE,
            )
        )
        give_away(self.folder)
        self._process = subprocess.Popen(
            [program, "-q", self.folder / "settings"], user=server_user(), cwd=self.folder
        )
        self._wait_until_it_listens()

    def url(self, database: str = "postgres", **options: str) -> str:
        return self._server.url(database, **options).replace(
            f":{self._server.port}/", f":{self.port}/"
        )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder)

    def _wait_until_it_listens(self) -> None:
        """It says nothing when it is ready, so it is tried; a refusal takes no time."""
        for _ in range(100 * _PATIENCE_SECONDS):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=0.01)
                raise RuntimeError(f"pgbouncer ended with {code}: {self._log()}")
        raise RuntimeError(f"pgbouncer does not listen: {self._log()}")

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else "no log"
