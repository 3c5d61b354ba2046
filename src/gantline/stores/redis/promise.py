"""What the server promises, as it is configured: asked when the store is opened."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from gantline.contract.capabilities import Capabilities, Durability
from gantline.contract.payload import DEFAULT_PAYLOAD_LIMIT
from gantline.contract.retention import IN_MEMORY
from gantline.stores.advice import Advice
from gantline.stores.redis.calls import Calls, Refused
from gantline.stores.redis.location import Location

# No key of ours ever expires, so that what removes only such keys removes no job.
_KEEPS_JOBS: Final = ("noeviction", "volatile-")
_UNKNOWN: Final = "unknown"
_FAILOVER: Final = (
    "a failover to a replica that lacks the last writes, which can lose an accepted job, undo an "
    "ended one and hand a fence or an event's number out again (run tokens keep stale runs out)"
)


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What we could learn of the server. Hosted ones hide some of it."""

    software: str
    version: str
    appends: bool
    """Whether every write goes to a file (AOF)."""
    syncs: str
    """When that file is brought to the disk: always, everysec, no, unknown."""
    evicts: str
    """What it does when the memory is full (maxmemory-policy)."""
    replicas: int


async def ask_server(calls: Calls) -> Server:
    facts = _facts(await calls.ask("INFO", "everything"))
    syncs = _setting(await calls.ask("CONFIG", "GET", "appendfsync"))
    is_valkey = facts.get("server_name") == "valkey" or "valkey_version" in facts
    return Server(
        software="Valkey" if is_valkey else "Redis",
        version=facts.get("valkey_version") or facts.get("redis_version", _UNKNOWN),
        appends=facts.get("aof_enabled") == "1",
        syncs=syncs,
        evicts=facts.get("maxmemory_policy", _UNKNOWN),
        replicas=int(facts.get("connected_slaves", "0")),
    )


def _facts(answer: Any) -> Mapping[str, str]:
    if isinstance(answer, Refused):
        return {}
    pairs = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _setting(answer: Any) -> str:
    if isinstance(answer, Refused) or len(answer) < 2:
        return _UNKNOWN
    return bytes(answer[1]).decode(errors="replace")


def capabilities(server: Server | None, location: Location) -> Capabilities:
    """Before the store is opened, what can be said without the server."""
    durability, lost_on = _durability(server, location)
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
        patience=location.deadline,
    )


def _durability(server: Server | None, location: Location) -> tuple[Durability, str]:
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
    looked_at = [
        Advice(
            f"a full memory removes no jobs (maxmemory-policy is {server.evicts})",
            server.evicts.startswith(_KEEPS_JOBS),
            "Set maxmemory-policy noeviction, or Redis removes jobs without a word when its memory "
            "is full.",
        ),
        Advice(
            f"writes are kept in a file (appendonly is {'yes' if server.appends else 'no'})",
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
