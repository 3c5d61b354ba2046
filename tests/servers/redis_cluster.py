"""A Redis cluster of one's own: three primaries, each with a replica, on loopback."""

import time
from collections.abc import Callable
from typing import Final

from tests.servers.postgres import free_port
from tests.servers.redis import RedisServer

_PRIMARIES: Final = 3
_SLOTS: Final = 16384
_PATIENCE_SECONDS: Final = 30


class RedisCluster:
    """Started at once; `stop` removes the folders of all its servers."""

    def __init__(self) -> None:
        self.servers = [_member() for _ in range(2 * _PRIMARIES)]
        primaries, replicas = self.servers[:_PRIMARIES], self.servers[_PRIMARIES:]
        for number, server in enumerate(primaries):
            first, behind = (_SLOTS * n // _PRIMARIES for n in (number, number + 1))
            server.call("CLUSTER", "ADDSLOTSRANGE", str(first), str(behind - 1))
        for server in self.servers[1:]:
            self.servers[0].call(
                *("CLUSTER", "MEET", "127.0.0.1", str(server.port)), server.settings["cluster-port"]
            )
        self._wait_for(lambda server: b"cluster_known_nodes:6" in server.call("CLUSTER", "INFO"))
        for primary, replica in zip(primaries, replicas, strict=True):
            replica.call("CLUSTER", "REPLICATE", primary.id)
        self._wait_for(lambda server: b"cluster_state:ok" in server.call("CLUSTER", "INFO"))
        self._wait_for(_is_settled)

    def url(self, **options: str) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis+cluster://{hosts}" + (f"?{query}" if query else "")

    def primary_of(self, key: str) -> RedisServer:
        """Who has the slot of a key now, by what the first living server says."""
        slot = self.slot_of(key)
        for server in self._alive():
            if server.is_primary and server.call("GET", key)[:6] != b"-MOVED":
                return server
        raise AssertionError(f"nobody has slot {slot}")

    def slot_of(self, key: str) -> int:
        return int(self._alive()[0].call("CLUSTER", "KEYSLOT", key)[1:])

    def _alive(self) -> list[RedisServer]:
        return [server for server in self.servers if server.is_alive]

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def _wait_for(self, is_so: Callable[[RedisServer], bool]) -> None:
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while not all(map(is_so, self.servers)):
            assert time.monotonic() < give_up_at, "the cluster does not come together"
            time.sleep(0.05)  # noqa: TID251  # servers that meet give no signal


def _member() -> RedisServer:
    return RedisServer(
        cluster_enabled="yes",
        cluster_port=str(free_port()),
        cluster_node_timeout="1000",
        cluster_config_file="nodes.conf",
        repl_diskless_sync_delay="0",
    )


def _is_settled(server: RedisServer) -> bool:
    """A primary has its replica, a replica is in step."""
    said = server.call("INFO", "replication")
    return b"connected_slaves:1" in said or b"master_link_status:up" in said
