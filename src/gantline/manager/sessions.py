"""Sessions: which worker processes there are, what they serve, and whether they still live."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gantline.contract.records import SESSIONS, RecordWrite
from gantline.contract.store import JobStore
from gantline.contract.text import storable
from gantline.manager.records import all_records, made_once
from gantline.runtime import new_uuid, process

_STORE: Final = "store"
_HOST_LIMIT: Final = 64
TIME_TO_LIVE: Final = timedelta(seconds=60)


class Session(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker process, as it registered itself."""

    session_id: str
    host: str
    pid: int
    version: str
    started_at: datetime
    last_seen_at: datetime
    queues: Mapping[str, int]
    slots: int = 0
    """How many runs at once in all queues together; 0: as many as these have."""
    concurrency: tuple[tuple[tuple[str, ...], int], ...] = ()
    """The names of each limited type, and how many runs of it there may be at once."""
    job_types: tuple[str, ...]
    consumers: tuple[str, ...] = ()
    """The durable consumers that it has; one session of those that have it reads for it."""
    schedules: tuple[str, ...] = ()
    """The keys of the schedules that its code declares."""
    schedules_mark: str = ""
    """The same for all sessions that declare the same schedules."""
    no_handler_grace_seconds: float | None = None
    """How it gives up on jobs that have no handler, when it leads the maintenance; None: it never
    does."""
    draining: bool = False
    """It claims nothing more, and ends when its runs have."""
    trouble: str = ""
    """Why it does not run what is due although it should, as its readiness has it."""
    key_id: str = ""
    """Of its key, where the installation requires one."""


def new_session_id() -> str:
    """Unique for every start, so that a process never finds what an earlier one held."""
    host, pid = process()
    return f"{storable(host[:_HOST_LIMIT], _HOST_LIMIT)}-{pid}-{new_uuid().hex[:8]}"


async def store_id(store: JobStore) -> str:
    """What names this store in files and messages; random, and made by the first caller."""
    return (await made_once(store, _STORE, new_uuid().hex.encode())).decode()


async def register(store: JobStore, session: Session) -> None:
    """Say that the session lives; to be repeated well within TIME_TO_LIVE."""
    body = msgspec.json.encode(session)
    write = RecordWrite(SESSIONS, session.session_id, body, time_to_live=TIME_TO_LIVE)
    await store.write_records([write])


async def unregister(store: JobStore, session_id: str) -> None:
    await store.write_records([RecordWrite(SESSIONS, session_id, None)])


async def live_sessions(store: JobStore) -> list[Session]:
    records = await all_records(store, SESSIONS)
    return [msgspec.json.decode(record.value, type=Session) for record in records]
