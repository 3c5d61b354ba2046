"""gantline consumer: which consumers there are, how far they are, and how one is forgotten."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

from gantline.contract.store import JobStore
from gantline.manager.cursors import ConsumerCursor, begin_cursor, write_cursor
from gantline.manager.sessions import Session, register
from tests.cli.conftest import Place, assert_refused
from tests.cli.test_doctor import checked

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUN = "every consumer of events has a worker"
WELL = "no consumer of events fails"
IN_TIME = "every consumer of events reads in time"


def a_consumer(place: Place, name: str, *, error: str = "", part_of: str = "") -> None:
    async def begin(store: JobStore) -> None:
        held = await begin_cursor(store, name, from_start=True)
        failing = ConsumerCursor(
            position=0,
            last_error=error,
            failed_at=NOW if error else None,
            part_of=part_of,
            until=1 if part_of else 0,
        )
        await write_cursor(store, name, failing, expected=held.version)

    place.stored(begin)


def a_worker_with(place: Place, *consumers: str) -> None:
    session = Session(
        session_id="s1",
        host="host",
        pid=1,
        version="1",
        started_at=NOW,
        last_seen_at=NOW,
        queues={},
        job_types=(),
        consumers=consumers,
    )

    async def registered(store: JobStore) -> None:
        await register(store, session)

    place.stored(registered)


def test_a_list_tells_how_far_each_is_and_what_went_wrong(empty_store: Place) -> None:
    assert "No consumer" in empty_store.run("consumer", "list").stderr
    empty_store.dead()
    a_consumer(empty_store, "shop.tell", error="OSError: away")
    a_consumer(empty_store, "webhooks")
    a_worker_with(empty_store, "webhooks")
    telling, webhooks = empty_store.json("consumer", "list")
    assert telling["name"] == "shop.tell"
    assert (telling["position"], telling["lag"], telling["runBy"]) == (0, 1, 0)
    assert telling["lastError"] == "OSError: away"
    assert (webhooks["name"], webhooks["runBy"], webhooks["lastError"]) == ("webhooks", 1, "")


def test_one_that_is_retired_is_forgotten_after_a_question(empty_store: Place) -> None:
    a_consumer(empty_store, "retired")
    assert_refused(empty_store.run("consumer", "delete", "retired"), 2, "--yes")
    assert empty_store.json("consumer", "delete", "retired", "--yes")["name"] == "retired"
    assert empty_store.json("consumer", "list") == []
    assert_refused(empty_store.run("consumer", "delete", "retired", "--yes"), 3, "retired")
    (audited,) = empty_store.json("audit", "list")
    assert (audited["type"], audited["aggregate"]) == ("deleteConsumer", "consumer:retired")


def test_one_that_a_worker_runs_is_not_forgotten(empty_store: Place) -> None:
    a_consumer(empty_store, "webhooks")
    a_worker_with(empty_store, "webhooks")
    result = empty_store.run("consumer", "delete", "webhooks", "--yes")
    assert_refused(result, 1, "1 live worker.")
    assert len(empty_store.json("consumer", "list")) == 1


def test_the_doctor_warns_of_consumers_that_nobody_runs_and_of_failing_ones(
    empty_store: Place,
) -> None:
    assert RUN not in checked(empty_store)
    a_consumer(empty_store, "webhooks", error="OSError: away")
    checks = checked(empty_store)
    assert checks[RUN]["result"] == "warn"
    assert "webhooks" in checks[RUN]["advice"]
    assert "gantline consumer delete" in checks[RUN]["advice"]
    assert checks[WELL]["advice"] == "webhooks: OSError: away."
    a_worker_with(empty_store, "webhooks")
    assert checked(empty_store)[RUN]["result"] == "ok"


def test_what_a_consumer_has_put_off_may_be_dropped_while_it_is_run(empty_store: Place) -> None:
    empty_store.dead()
    a_consumer(empty_store, "sending")
    a_consumer(empty_store, "sending#mail", error="nobody receives it.", part_of="sending")
    a_worker_with(empty_store, "sending")
    _, part = empty_store.json("consumer", "list")
    assert (part["partOf"], part["runBy"], part["lag"]) == ("sending", 1, 1)
    checks = checked(empty_store)
    assert checks[RUN]["result"] == "ok"
    assert checks[WELL]["advice"] == "sending#mail: nobody receives it."
    assert empty_store.json("consumer", "delete", "sending#mail", "--yes")["partOf"] == "sending"
    (whole,) = empty_store.json("consumer", "list")
    assert whole["name"] == "sending"


def test_the_doctor_warns_of_events_that_wait_for_long_whatever_the_consumer(
    empty_store: Place,
) -> None:
    empty_store.dead()
    a_consumer(empty_store, "shop.tell")
    a_worker_with(empty_store, "shop.tell")
    assert checked(empty_store)[IN_TIME]["result"] == "ok"
    with closing(sqlite3.connect(empty_store.database)) as connection, connection:
        connection.execute("UPDATE gantline_log SET at = at - 370000000")
    check = checked(empty_store)[IN_TIME]
    assert check["result"] == "warn"
    assert "shop.tell (6 minutes)" in check["advice"]
