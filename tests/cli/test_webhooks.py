"""gantline webhook: the same on a store and on a server, and secrets on no command line."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantline.webhooks.signing import new_secret, sign_standard
from tests.cli.conftest import Place
from tests.servers.http_api import ApiProcess
from tests.servers.receiver import Receiver, status

KEY = "1:0123456789abcdefghijklmnopqrstuvwxyz"
URL = "https://93.184.215.14/hook"


@pytest.fixture
def keyed(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", KEY)
    return place


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/gantline.db"
    served = ApiProcess("tests.client.served:app", store=store)
    yield served
    served.stop()


@pytest.fixture(params=["store", "server"])
def where(
    request: pytest.FixtureRequest, keyed: Place, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, ...]:
    """On a store, or on a server before one."""
    if request.param == "store":
        return ("--store", f"sqlite:///{keyed.database}")
    monkeypatch.setenv("GANTLINE_API_KEY", "operator")
    return ("--url", request.getfixturevalue("server").url)


def test_a_webhook_from_its_making_to_its_end(keyed: Place, where: tuple[str, ...]) -> None:
    made = keyed.json(
        *(*where, "webhook", "add", URL, "--event", "job.*", "--type", "ship"),
        *("--format", "bpc", "--header-prefix", "X-BPC", "--retry", "5s", "--retry", "1h"),
    )
    webhook_id = made["webhookId"]
    assert made["secret"].startswith("whsec_")
    assert (made["format"], made["headerPrefix"], made["retrySeconds"]) == (
        "bpc",
        "X-BPC",
        [5.0, 3600.0],
    )
    shown = keyed.json(*where, "webhook", "show", webhook_id)
    assert "secret" not in shown
    assert shown == {name: value for name, value in made.items() if name != "secret"}
    assert shown in keyed.json(*where, "webhook", "list")
    rotated = keyed.json(*where, "webhook", "rotate", webhook_id, "--overlap", "1h")
    assert rotated["secret"] != made["secret"]
    assert rotated["oldSecretUntil"] is not None
    assert keyed.json(*where, "webhook", "disable", webhook_id)["status"] == "disabled"
    assert keyed.json(*where, "webhook", "enable", webhook_id)["status"] == "enabled"
    assert keyed.json(*where, "webhook", "deliveries", webhook_id) == []
    empty = keyed.json(*where, "webhook", "replay", webhook_id)
    assert (empty["matching"], empty["replayed"]) == (0, 0)
    refused = keyed.run(*where, "webhook", "delete", webhook_id)
    assert refused.exit_code == 2, "without a terminal there is nobody to ask"
    assert keyed.json(*where, "webhook", "delete", webhook_id, "--yes")["deleted"]
    assert keyed.run(*where, "webhook", "show", webhook_id).exit_code == 3


def test_a_webhook_comes_with_its_secret_from_a_file(keyed: Place, where: tuple[str, ...]) -> None:
    secret = "-".join(("the", "receivers", "own", "secret"))
    file = keyed.folder / "secret"
    file.write_text(f"{secret}\n")
    add = (*where, "webhook", "add", URL, "--secret-file")
    for name, stdin in ((str(file), None), ("-", f"{secret}\n")):
        made = keyed.run(*add, name, stdin=stdin)
        assert (made.exit_code, "webhookId" in made.stdout) == (0, True), made.output
        assert secret not in made.output
        assert "Keep the secret" not in made.output
    file.write_text("short")
    refused = keyed.run(*add, str(file))
    assert refused.exit_code != 0
    assert "whsec_ and 24 to 64 bytes" in refused.output


def test_every_change_is_written_down_before_it_is_made(keyed: Place) -> None:
    made = keyed.json("webhook", "add", URL)
    for verb in ("rotate", "disable", "enable"):
        keyed.json("webhook", verb, made["webhookId"])
    keyed.json("webhook", "list")
    keyed.json("webhook", "delete", made["webhookId"], "--yes")
    trail = keyed.json("audit", "list")[::-1]
    about = f"webhook:{made['webhookId']}"
    assert [(one["type"], one["aggregate"]) for one in trail] == [
        ("createWebhook", "webhook"),
        *((f"{verb}Webhook", about) for verb in ("rotate", "disable", "enable", "delete")),
    ]
    assert "whsec_" not in json.dumps(trail)


def test_secrets_move_to_a_new_key_and_the_old_one_can_go(
    keyed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keyed.json("webhook", "add", URL)
    new = "2:zyxwvutsrqponmlkjihgfedcba9876543210"
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", f"{new} {KEY}")
    done = {"rekeyed": 1, "unchanged": 0, "unreadable": 0}
    assert keyed.json("webhook", "rekey") == done
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", new)
    assert keyed.json("webhook", "rekey") == {"rekeyed": 0, "unchanged": 1, "unreadable": 0}
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", KEY)
    gone = keyed.run("webhook", "rekey")
    assert gone.exit_code == 1
    assert "old key" in gone.stderr
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", "")
    assert "Webhooks are off" in keyed.run("webhook", "rekey").stderr
    trail = [one["type"] for one in keyed.json("audit", "list")]
    assert trail == ["rekeyWebhooks"] * 3 + ["createWebhook"]
    assert made["secret"] not in json.dumps(keyed.json("audit", "list"))


def test_what_is_wrong_is_said_in_a_line(keyed: Place, where: tuple[str, ...]) -> None:
    for url in ("https://127.0.0.1/", "http://93.184.215.14/", "ftp://x"):
        refused = keyed.run(*where, "webhook", "add", url)
        assert refused.exit_code == 2, refused.stderr
        assert ("#/url:" in refused.stderr) == ("--url" in where)
        assert ("GANTLINE_WEBHOOK_ALLOW" in refused.stderr) == (url != "ftp://x")
    assert keyed.run(*where, "webhook", "add", URL, "--timeout", "2h").exit_code == 2
    assert keyed.run(*where, "webhook", "show", "no-id").exit_code == 2


def test_who_can_reach_the_store_is_told_why_a_url_is_refused(
    keyed: Place, where: tuple[str, ...]
) -> None:
    refused = keyed.run(*where, "webhook", "add", "https://hooks.nosuch.invalid/")
    assert ("it cannot be found" in refused.stderr) == ("--url" not in where)


def test_a_test_waits_for_a_worker_and_gives_up(keyed: Place, where: tuple[str, ...]) -> None:
    made = keyed.json(*where, "webhook", "add", URL)
    waited = keyed.run(*where, "webhook", "test", made["webhookId"], "--wait", "1s")
    assert "still pending" in waited.stderr
    if where[0] == "--store":  # it knows the workers
        assert waited.exit_code == 1
        assert "No worker is alive to make it. Start one: gantline worker" in waited.stderr
    else:
        assert waited.exit_code == 124
        assert "GANTLINE_WEBHOOK_KEY" in waited.stderr
    (pending,) = keyed.json(*where, "webhook", "deliveries", made["webhookId"])
    assert pending["status"] == "PENDING"


def test_without_a_key_webhooks_can_be_looked_at_but_not_made(
    keyed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keyed.json("webhook", "add", URL)
    monkeypatch.delenv("GANTLINE_WEBHOOK_KEY")
    assert [one["webhookId"] for one in keyed.json("webhook", "list")] == [made["webhookId"]]
    for words in (("add", URL), ("rotate", made["webhookId"])):
        refused = keyed.run("webhook", *words)
        assert refused.exit_code == 2
        assert "GANTLINE_WEBHOOK_KEY" in refused.stderr


def test_a_key_that_is_none_is_refused_without_being_shown(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTLINE_WEBHOOK_KEY", "1:short")
    refused = place.run("webhook", "add", URL)
    assert refused.exit_code == 2
    assert "GANTLINE_WEBHOOK_KEY" in refused.stderr
    assert "short" not in refused.stderr.replace("shorter", "")


def test_a_webhook_for_domain_events_names_their_types(keyed: Place) -> None:
    made = keyed.json("webhook", "add", URL, "--event", "ORDER_SHIPPED", "--event", "domain.*")
    assert made["eventTypes"] == ["ORDER_SHIPPED", "domain.*"]
    refused = keyed.run("webhook", "add", URL, "--event", "job.exploded")
    assert refused.exit_code == 2
    assert "must be some of job.completed" in refused.stderr


def test_a_type_that_no_job_has_may_be_a_typing_error(keyed: Place, where: tuple[str, ...]) -> None:
    keyed.json(*where, "job", "submit", "document-indexing", '{"documentId": "d", "rowVersion": 1}')
    add = (*where, "webhook", "add", URL, "--type")
    assert "Is 'document-indexing' meant?" in keyed.run(*add, "document-indexin").stderr
    assert "meant" not in keyed.run(*add, "document-indexing").stderr
    assert "job.failed is an event" in keyed.run(*add, "job.failed").stderr


def test_a_type_that_the_application_declares_is_no_typing_error(
    keyed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ("webhook", "add", URL, "--type")
    assert "There is no job of the type 'ship'" in keyed.run(*add, "ship").stderr
    monkeypatch.setenv("GANTLINE_APP", "tests.webhooks.told_app:jobs")
    assert "There is no job" not in keyed.run(*add, "ship").stderr
    assert "Is 'ship' meant?" in keyed.run(*add, "shipp").stderr


@pytest.mark.xdist_group("processes")
def test_a_worker_without_the_key_says_so_and_so_do_test_and_doctor(
    keyed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keyed.json("webhook", "add", URL)
    monkeypatch.delenv("GANTLINE_WEBHOOK_KEY")
    with keyed.process("worker", "tests.webhooks.told_app:jobs") as worker:
        worker.wait_for("Working on")
        assert "GANTLINE_WEBHOOK_KEY is not set, so this worker delivers no" in worker.stderr
        keyed.eventually(lambda: bool(keyed.json("sessions")), "the worker is alive")
        tested = keyed.run("webhook", "test", made["webhookId"], "--wait", "1s")
        assert tested.exit_code == 1
        assert "start the workers with GANTLINE_WEBHOOK_KEY" in tested.stderr
        checks = json.loads(keyed.run("-o", "json", "doctor").stdout)
    (found,) = [one for one in checks if one["check"] == "webhooks have a worker"]
    assert (found["result"], found["found"]) == ("warn", "webhooks are NOT delivered")
    assert "GANTLINE_WEBHOOK_KEY" in found["advice"]
    assert not any("consumer delete" in one["advice"] for one in checks)


@pytest.mark.xdist_group("processes")
def test_a_real_worker_delivers_and_the_commands_tell(
    keyed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    receiver.answers["/broken"] = status(404, b"nobody here")
    monkeypatch.setenv("GANTLINE_WEBHOOK_ALLOW", "127.0.0.0/8")
    try:
        good = keyed.json("webhook", "add", receiver.url("/good"))
        bad = keyed.json("webhook", "add", receiver.url("/broken"))
        with keyed.process("worker", "tests.webhooks.told_app:jobs") as worker:
            worker.wait_for("Working on")
            assert "webhooks (10)" in worker.stderr
            tested = keyed.json("webhook", "test", good["webhookId"])
            assert (tested["status"], tested["httpStatus"]) == ("DELIVERED", 204)
            failed = keyed.run("-o", "json", "webhook", "test", bad["webhookId"])
            assert failed.exit_code == 1
            (attempt,) = json.loads(failed.stdout)["tries"]
            assert (attempt["httpStatus"], attempt["responseBody"]) == (404, "nobody here")
            keyed.submit("ship", "7")
            received = receiver.wait_for(lambda got: len(got) >= 4)
            told = [json.loads(one.body) for one in received if one.path == "/good"]
            assert told[-1]["data"]["result"] == {"order": 7}
            keyed.eventually(
                lambda: len(_ids(keyed, bad, "FAILED")) == 2, "both deliveries have failed"
            )
            receiver.answers.clear()
            replayed = keyed.json("webhook", "replay", bad["webhookId"], "--yes")
            assert replayed["replayed"] == 2
            keyed.eventually(
                lambda: len(_ids(keyed, bad, "DELIVERED")) == 2, "both were delivered after all"
            )
            (one, _) = _ids(keyed, bad, "DELIVERED")
            keyed.json("webhook", "replay", bad["webhookId"], one)
            receiver.wait_for(lambda got: len(got) >= 7)
    finally:
        receiver.stop()


def _ids(place: Place, webhook: dict[str, str], wanted: str) -> list[str]:
    found = place.json("webhook", "deliveries", webhook["webhookId"], "--status", wanted)
    return [one["deliveryId"] for one in found]


def test_verify_tells_whether_a_request_is_genuine(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, body = new_secret(), b'{"type":"job.completed"}'
    file = tmp_path / "body.json"
    file.write_bytes(body)
    sent = str(int(time.time()))
    headers = [
        *("-H", "webhook-id: abc", "-H", f"Webhook-Timestamp: {sent}"),
        *("-H", f"webhook-signature: {sign_standard(secret, 'abc', sent, body)}"),
    ]
    assert place.run("webhook", "verify", str(file), *headers).exit_code == 2
    monkeypatch.setenv("GANTLINE_WEBHOOK_SECRET", f"{new_secret()} {secret}")
    assert place.json("webhook", "verify", str(file), *headers)["webhookId"] == "abc"
    piped = place.run("webhook", "verify", "-", *headers, stdin=body)
    assert piped.exit_code == 0, piped.stderr
    wrong = place.run("webhook", "verify", "-", *headers, stdin=body + b" ")
    assert wrong.exit_code == 1
    assert "No signature fits" in wrong.stderr
    monkeypatch.setenv("GANTLINE_WEBHOOK_SECRET", new_secret())
    assert place.run("webhook", "verify", str(file), *headers).exit_code == 1
