"""The server: what it promises by its configuration, read when the store is opened."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from gantline.contract.capabilities import Capabilities, Durability
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT
from gantline.contract.retention import IN_MEMORY
from gantline.stores.diagnostics import Advice
from gantline.stores.redis.calls import Calls, Refused
from gantline.stores.redis.location import Location

# Our keys never expire, so a policy that removes only keys with an expiry removes no job.
_KEEPS_JOBS: Final = ("noeviction", "volatile-")
_UNKNOWN: Final = "unknown"
_FAILOVER: Final = (
    "a failover to a replica that lacks the last writes, which can lose an accepted job, undo an "
    "ended one and hand a fence or an event's number out again (run tokens keep stale runs out)"
)


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the server. Hosted ones hide some of it."""

    software: str
    version: str
    appends: bool
    """Whether every write goes to a file (AOF)."""
    syncs: str
    """When that file is synced to the disk: always, everysec, no, unknown."""
    evicts: str
    """What it does when the memory is full (maxmemory-policy)."""
    replicas: int


async def ask_server(calls: Calls) -> Server:
    facts = _read_facts(await calls.ask("INFO", "everything"))
    syncs = _read_setting(await calls.ask("CONFIG", "GET", "appendfsync"))
    is_valkey = facts.get("server_name") == "valkey" or "valkey_version" in facts
    return Server(
        software="Valkey" if is_valkey else "Redis",
        version=facts.get("valkey_version") or facts.get("redis_version", _UNKNOWN),
        appends=facts.get("aof_enabled") == "1",
        syncs=syncs,
        evicts=facts.get("maxmemory_policy", _UNKNOWN),
        replicas=int(facts.get("connected_slaves", "0")),
    )


def _read_facts(response: Any) -> Mapping[str, str]:
    if isinstance(response, Refused):
        return {}
    pairs = (line.partition(":") for line in response.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _read_setting(response: Any) -> str:
    if isinstance(response, Refused) or len(response) < 2:
        return _UNKNOWN
    return bytes(response[1]).decode(errors="replace")


def capabilities(server: Server | None, location: Location) -> Capabilities:
    """Say what the store promises; without a server, what holds for every server."""
    durability, lost_on = _find_durability(server, location)
    return Capabilities(
        durability=durability,
        ack_lost_on=lost_on,
        caller_transaction=False,
        clock="server",
        writers="many",
        event_lag=timedelta(0),
        count_staleness=timedelta(0),
        max_payload_bytes=DEFAULT_PAYLOAD_LIMIT,
        retention=IN_MEMORY,
        turns=True,
        limits=True,
        patience=location.deadline,
    )


def _find_durability(server: Server | None, location: Location) -> tuple[Durability, str]:
    if location.replicas:
        return "replicated", (
            f"the loss of the primary together with {location.replicas} replicas that had the "
            "write, or a failover to one that had not"
        )
    if server is None or not server.appends:
        return (
            "none",
            f"the end of the server's process, for all since its last snapshot; {_FAILOVER}",
        )
    if server.syncs == "always":
        return "power_loss", f"the loss of the disk; {_FAILOVER}"
    often = "second or two" if server.syncs == "everysec" else "half minute"
    return "process", f"a power cut, for the last {often}; {_FAILOVER}"


def advice(server: Server, location: Location) -> Sequence[Advice]:
    """What an operator should know of how the server is configured."""
    keeps_jobs = server.evicts.startswith(_KEEPS_JOBS)
    jobs = "no jobs" if keeps_jobs else "jobs"
    kept, appends = ("kept", "yes") if server.appends else ("not kept", "no")
    looked_at = [
        Advice(
            f"a full memory removes {jobs} (maxmemory-policy is {server.evicts})",
            keeps_jobs,
            "Set maxmemory-policy noeviction, or Redis removes jobs without a word when its memory "
            "is full.",
        ),
        Advice(
            f"writes are {kept} in a file (appendonly is {appends})",
            server.appends,
            "Set appendonly yes, or the server ends with all jobs since its last snapshot.",
        ),
    ]
    if location.replicas:
        waited = f"a write waits for {location.replicas} of {server.replicas} replicas"
        is_enough = server.replicas >= location.replicas
        next_step = "Connect more replicas; until then every write fails."
        looked_at.append(Advice(waited, is_enough, next_step))
    return looked_at
