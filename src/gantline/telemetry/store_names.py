"""What a store is called in texts for people: never with who logs in, and how."""

from gantline.contract.store import JobStore
from gantline.telemetry.url_secrets import without_secrets


def store_name(store: JobStore, source: str | JobStore) -> str:
    """Say where its jobs are; of a SQLite file it is the whole path."""
    file = store.capabilities.local_file
    return shown_source(source) if file is None else str(file.absolute())


def shown_source(source: str | JobStore) -> str:
    return without_secrets(source) if isinstance(source, str) else "a store object of its own"
