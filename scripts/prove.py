"""`python -m scripts.prove`: `gantline prove` on a store of each kind, for docs/reliability.md."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

RESULTS: Final = Path(__file__).parent.parent / "tests" / "proving" / "results.json"
STORES: Final = ("sqlite", "postgres", "redis")


def main() -> int:
    """Prove one after the other; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m scripts.prove")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each store")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=STORES, action="append")
    options = parser.parse_args()
    failed = 0
    for store in options.store or STORES:
        with _url(store) as url:
            code, report = _prove(url, options.minutes, options.seed)
        failed += code
        if report is not None:
            _write(report | {"store": store})
    return bool(failed)


def _prove(url: str, minutes: float, seed: int) -> tuple[int, dict[str, Any] | None]:
    given = ("--minutes", str(minutes), "--seed", str(seed), "--json")
    command = [sys.executable, "-m", "gantline.cli.main", "--store", url, "prove", *given]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return done.returncode, msgspec.json.decode(done.stdout) if done.stdout else None


def _write(report: dict[str, Any]) -> None:
    """The other stores keep theirs."""
    known = msgspec.json.decode(RESULTS.read_bytes()) if RESULTS.exists() else []
    by_store = {one["store"]: one for one in (*known, report)}
    ordered = [by_store[store] for store in STORES if store in by_store]
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered)) + b"\n")


@contextmanager
def _url(store: str) -> Iterator[str]:
    """An empty store, on a server of its own that is synced as users have theirs."""
    match store:
        case "sqlite":
            with TemporaryDirectory() as folder:
                yield f"sqlite:///{folder}/proof.db"
        case "postgres":
            postgres = PostgresServer(synced=True)
            try:
                yield postgres.url(schema="proof")
            finally:
                postgres.stop()
        case _:
            redis = RedisServer()
            try:
                yield redis.url(prefix="proof")
            finally:
                redis.stop()


if __name__ == "__main__":
    sys.exit(main())
