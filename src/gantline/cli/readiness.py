"""Whether there is a store to look at: looking must neither create nor change one."""

import os

from gantline.contract.errors import SchemaMismatch, StoreMisconfigured
from gantline.contract.store import JobStore
from gantline.stores.migrations import migrator_of, plan

_NEXT = "Make it with `gantline db migrate`, or name another by --store or --app."


async def refuse_unless_ready(store: JobStore, place: str) -> None:
    """Raise a StoreError where opening the store would make a file or a schema."""
    if not _is_there(store):
        raise StoreMisconfigured(f"There is no store file {place}.", next_step=_NEXT)
    if _is_no_file(store) or not hasattr(store, "migrator"):
        return  # opening it tells what it is; or there is nothing that it would make
    migrator = migrator_of(store)
    applied = await migrator.applied()
    if not applied:
        raise StoreMisconfigured(f"There is no schema of ours in {place} yet.", next_step=_NEXT)
    if missing := plan(migrator.known, applied):
        raise SchemaMismatch(
            f"The store {place} has schema {applied[-1].number}; this version of Gantline needs "
            f"{missing[-1].number}.",
            next_step="Run `gantline db migrate`.",
        )


def _is_there(store: JobStore) -> bool:
    file = store.capabilities.local_file
    return file is None or os.path.exists(file)  # Path.exists raises where a name is too long


def _is_no_file(store: JobStore) -> bool:
    file = store.capabilities.local_file
    return file is not None and not os.path.isfile(file)
