"""gantline key: keys are made, shown once, rotated and revoked."""

import asyncio
import json
import logging
from typing import Any

import pytest

from gantline.audit.sinks import StoreAudit
from gantline.auth.action import Action
from gantline.auth.api_key import KeyGrant
from gantline.auth.api_key_authenticator import ApiKeyAuthenticator
from gantline.auth.api_keys import ApiKeys
from gantline.auth.authenticator import Credentials
from gantline.auth.peppers import PEPPER_VARIABLE, Peppers
from gantline.auth.principal import Principal, Role
from gantline.auth.rate_limit import RateLimit
from gantline.contract.clock import EPOCH, SystemClock
from gantline.contract.errors import InvalidCredentials
from gantline.contract.store import JobStore
from gantline.contract.webhook import WebhookSpec
from gantline.manager.manager import JobManager
from gantline.manager.submitter import Submission
from gantline.schedules.recurrence import Every
from gantline.schedules.schedule import Schedule
from gantline.schedules.schedules import Schedules
from gantline.stores import store_from_url
from gantline.testing.factories import make_job
from gantline.webhooks.endpoints import Endpoints
from gantline.webhooks.secret_encryption import Vault
from gantline.webhooks.settings import WebhookSettings
from tests.api.application import found_in_public
from tests.cli.conftest import Place

PEPPER = "1:0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def pepper(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEPPER_VARIABLE, PEPPER)
    place.make_store()


def opens(place: Place, text: str) -> Principal | None:
    """Whom a key stands for, as a server on the same store sees it."""

    async def ask() -> Principal | None:
        store = store_from_url(f"sqlite:///{place.database}", clock=SystemClock())
        await store.open()
        try:
            keys = ApiKeys(store, Peppers.read(PEPPER), clock=SystemClock())
            credentials = Credentials(headers={"x-api-key": text})
            return await ApiKeyAuthenticator(keys).authenticate(credentials)
        except InvalidCredentials:
            return None
        finally:
            await store.close()

    return asyncio.run(ask())


def test_a_key_is_made_and_works(place: Place) -> None:
    made = place.json(
        "key", "create", "ci", "--tenant", "shop", "--role", "operator", "--scope", "jobs:read",
        "--subject", "s1", "--type", "t", "--system", "--expires-in", "90d",
        "--rate-limit", "600/min:50",
    )  # fmt: skip
    principal = opens(place, made["key"])
    assert principal is not None
    assert principal.id == f"key:{made['keyId']}"
    assert principal == Principal(
        id=principal.id,
        tenant_id="shop",
        roles=frozenset({Role.OPERATOR}),
        scopes=frozenset({Action.READ}),
        subjects=frozenset({"s1"}),
        job_types=frozenset({"t"}),
        is_system=True,
        rate_limit=RateLimit(10.0, 50),
    )
    assert made["rateLimit"] == {"perSecond": 10.0, "burst": 50}
    assert made["expiresAt"] > made["createdAt"]
    assert made["createdBy"].startswith("cli:")


def test_without_options_a_key_sees_only_its_own(place: Place) -> None:
    principal = opens(place, place.json("key", "create", "ci")["key"])
    assert principal is not None
    assert principal == Principal(id=principal.id, tenant_id="default")


def test_a_name_that_another_key_has_is_a_warning(place: Place) -> None:
    first = place.json("key", "create", "ci")["keyId"]
    other = place.run("key", "create", "ci", "--tenant", "other")
    assert (other.exit_code, "Warning" in other.stderr) == (0, False)
    second = place.run("key", "create", "ci")
    assert second.exit_code == 0
    assert f"Warning: {first} has the name 'ci' already." in second.stderr
    assert " have the name 'ci' already." in place.run("key", "create", "ci").stderr
    for one in place.json("key", "list"):
        place.run("key", "revoke", one["keyId"], "--yes")
    assert "Warning" not in place.run("key", "create", "ci").stderr


def test_who_makes_a_key_learns_in_which_store_it_is(place: Place) -> None:
    made = place.run("key", "create", "ci")
    assert f"It is registered in the store {place.database}.\n" in made.stderr


@pytest.mark.parametrize("words", ["list", "show k1", "rotate k1", "revoke k1", "create x\ty"])
def test_only_a_key_that_is_made_makes_a_store(place: Place, words: str) -> None:
    store = ("--store", f"sqlite:///{place.folder}/none.db")
    assert place.run(*store, "key", *words.split(" ")).exit_code != 0
    assert not (place.folder / "none.db").exists()


def test_the_secret_is_shown_once(place: Place) -> None:
    result = place.run("key", "create", "ci")
    assert "shown this once" in result.stderr
    key = result.stdout.split()[1]
    assert opens(place, key)
    secret = key.rpartition("_")[2][:43]
    key_id = place.json("key", "list")[0]["keyId"]
    for words in (("key", "list"), ("key", "show", key_id), ("-o", "json", "key", "list")):
        shown = place.run(*words)
        assert key_id in shown.stdout
        assert secret not in shown.output
    assert secret.encode() not in place.database.read_bytes()


def test_a_list_shows_what_operators_ask(place: Place) -> None:
    place.run("key", "create", "first", "--role", "viewer", "--expires-in", "1d")
    place.run("key", "create", "second")
    place.run("key", "create", "other", "--tenant", "other")
    result = place.run("key", "list")
    head, first, second = result.stdout.splitlines()
    assert head.split()[:5] == ["keyId", "name", "state", "roles", "isSystem"]
    assert first.split()[1:5] == ["first", "active", "viewer", "no"]
    assert second.split()[1:3] == ["second", "active"]


def test_a_rotated_key_works_with_both_for_a_while(place: Place) -> None:
    old = place.json("key", "create", "ci")
    new = place.json("key", "rotate", old["keyId"], "--overlap", "1h")
    assert new["keyId"] == old["keyId"]
    assert opens(place, old["key"]) == opens(place, new["key"]) is not None
    shown = place.json("key", "show", old["keyId"])
    assert shown["oldSecretUntil"] == new["oldSecretUntil"]
    assert shown["lastUsedAt"] is not None


def test_ending_a_secret_at_once_must_be_confirmed(place: Place) -> None:
    old = place.json("key", "create", "ci")
    refused = place.run("key", "rotate", old["keyId"], "--overlap", "0s")
    assert refused.exit_code == 2
    assert "Confirm with --yes" in refused.stderr
    assert opens(place, old["key"])
    new = place.json("key", "rotate", old["keyId"], "--overlap", "0s", "--yes")
    assert opens(place, old["key"]) is None
    assert opens(place, new["key"])


def test_revoking_must_be_confirmed_and_is_for_ever(place: Place) -> None:
    made = place.json("key", "create", "ci")
    refused = place.run("key", "revoke", made["keyId"])
    assert refused.exit_code == 2
    assert "revoke the key 'ci'" in refused.stderr
    assert opens(place, made["key"])
    result = place.run("key", "revoke", made["keyId"], "--yes")
    assert result.exit_code == 0
    assert "within 5 seconds" in result.stderr
    assert opens(place, made["key"]) is None
    assert place.json("key", "list")[0]["state"] == "revoked"
    assert place.run("key", "rotate", made["keyId"]).exit_code == 2


# -- what a key made -------------------------------------------------------------------------------


class Home:
    """What webhooks need of an application."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.clock = SystemClock()
        self.manager = JobManager(store)
        self.audit = StoreAudit(store)


class Makings:
    """What a key has made, as a server would have had it made."""

    def __init__(self, place: Place, tenant: str = "default") -> None:
        self.key = place.json("key", "create", "thief", "--tenant", tenant)["keyId"]
        self.other = place.json("key", "create", "honest", "--tenant", tenant)["keyId"]
        self.tenant = tenant
        self.child, self.grandchild, self.webhook, self.changed, self.waiting = place.stored(
            self._make
        )

    async def _make(self, store: JobStore) -> tuple[str, str, str, str, str]:
        clock, me, honest = SystemClock(), f"key:{self.key}", f"key:{self.other}"
        keys = ApiKeys(store, Peppers.read(PEPPER), clock=clock)
        grant = KeyGrant(name="made", tenant_id=self.tenant)
        child = (await keys.create(grant, created_by=me)).key.id
        grandchild = (await keys.create(grant, created_by=f"key:{child}")).key.id
        manager = JobManager(store)
        schedules = Schedules(store, manager)
        for name, owner in (("mine", me), ("its", f"key:{grandchild}"), ("honest", honest)):
            schedule = Schedule(
                name=name,
                tenant_id=self.tenant,
                recurrence=Every(3600.0, EPOCH),
                job_type="t",
                owner=owner,
            )
            await schedules.create(schedule, origin="api")
        fired = await schedules.run(self.tenant, "mine", owner=me)
        await schedules.run(self.tenant, "honest", owner=honest)
        await manager.submit([Submission(make_job(tenant_id=self.tenant, created_by=me))])
        home = Home(store)
        settings = WebhookSettings(vault=Vault(Peppers.read(PEPPER)), resolve=found_in_public)
        endpoints, spec = Endpoints(home, settings), WebhookSpec(url="https://hooks.example/")
        created = await endpoints.create(spec, tenant_id=self.tenant, actor=me)
        changed = await endpoints.create(spec, tenant_id=self.tenant, actor=honest)
        await endpoints.create(spec, tenant_id=self.tenant, actor=honest)
        await endpoints.update(changed.webhook.webhook_id, spec, tenant_id=self.tenant, actor=me)
        ids = (created.webhook.webhook_id, changed.webhook.webhook_id)
        return child, grandchild, str(ids[0]), str(ids[1]), str(fired.job_id)

    @property
    def all(self) -> set[tuple[str, str]]:
        return {
            ("key", self.child),
            ("key", self.grandchild),
            ("schedule", "mine"),
            ("schedule", "its"),
            ("webhook", self.webhook),
            ("webhook", self.changed),
            ("job", self.waiting),
        }


def named(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(row["kind"], row["name"]) for row in rows}


def test_what_a_key_made_is_listed(place: Place) -> None:
    """Also what was made by a key that it made, and whose webhook it changed."""
    makings = Makings(place)
    rows = place.json("key", "made", makings.key)
    assert named(rows) == makings.all
    assert all(row["isActive"] for row in rows)
    assert place.json("key", "made", makings.grandchild) == [
        {
            "kind": "schedule",
            "name": "its",
            "state": "active",
            "tenantId": "default",
            "isActive": True,
        }
    ]
    assert (
        "made nothing" in place.run("key", "made", place.json("key", "create", "x")["keyId"]).stderr
    )


def test_a_revoked_key_says_what_goes_on_without_it(place: Place) -> None:
    makings = Makings(place)
    result = place.run("-o", "json", "key", "revoke", makings.key, "--yes")
    shown = json.loads(result.stdout)
    assert (shown["state"], named(shown["made"])) == ("revoked", makings.all)
    assert f"What it made goes on (7). To disable it: gantline key revoke {makings.key} " in (
        result.stderr
    )
    assert place.json("schedule", "show", "mine")["paused"] is False
    assert place.status(makings.waiting) == "Queued"


@pytest.mark.parametrize("is_revoked", [False, True])
def test_what_a_key_made_is_disabled_on_request(place: Place, is_revoked: bool) -> None:
    """With the key or later; and what others made is left alone."""
    makings = Makings(place)
    if is_revoked:
        place.json("key", "revoke", makings.key, "--yes")
    refused = place.run("key", "revoke", makings.key, "--disable-made")
    assert (refused.exit_code, "and disable what it made" in refused.stderr) == (2, True)
    shown = place.json("key", "revoke", makings.key, "--disable-made", "--yes")
    assert named(shown["made"]) == makings.all
    assert {row["state"] for row in shown["made"]} == {
        "revoked",
        "paused",
        "disabled",
        "cancelled",
    }
    assert not any(row["isActive"] for row in shown["made"])
    assert not any(row["isActive"] for row in place.json("key", "made", makings.key))
    assert place.status(makings.waiting) == "Cancelled"
    assert place.json("schedule", "show", "mine")["paused"] is True
    assert place.json("schedule", "show", "honest")["paused"] is False
    states = {row["keyId"]: row["state"] for row in place.json("key", "list")}
    assert states.pop(makings.other) == "active"
    assert set(states.values()) == {"revoked"}
    enabled = [row for row in place.json("webhook", "list") if row["status"] == "enabled"]
    assert [row["createdBy"] for row in enabled] == [f"key:{makings.other}"]
    statuses = sorted(row["status"] for row in place.json("job", "list"))
    assert statuses == ["Cancelled", "Queued", "Queued"], "a job that it submitted itself stays"
    done = [(one["type"], one["aggregate"]) for one in place.json("audit", "list")][::-1]
    assert done[-7:] == [
        ("revokeKey", f"key:{makings.child}"),
        ("revokeKey", f"key:{makings.grandchild}"),
        ("pauseSchedule", "schedule:its"),
        ("pauseSchedule", "schedule:mine"),
        *sorted(("disableWebhook", f"webhook:{one}") for one in (makings.webhook, makings.changed)),
        ("cancelJob", f"job:{makings.waiting}"),
    ]


def test_what_a_key_of_the_system_made_is_found_in_every_tenant(place: Place) -> None:
    system = place.json("key", "create", "root", "--role", "admin", "--system")["keyId"]

    async def make(store: JobStore) -> None:
        schedule = Schedule(
            name="far",
            tenant_id="other",
            recurrence=Every(3600.0, EPOCH),
            job_type="t",
            owner=f"key:{system}",
        )
        await Schedules(store, JobManager(store)).create(schedule, origin="api")

    place.stored(make)
    (row,) = place.json("key", "made", system)
    assert (row["name"], row["tenantId"]) == ("far", "other")
    place.json("key", "revoke", system, "--disable-made", "--yes")
    assert place.json("--tenant", "other", "schedule", "show", "far")["paused"] is True
    (event,) = place.json("--tenant", "other", "audit", "list")
    assert (event["type"], event["aggregate"]) == ("pauseSchedule", "schedule:far")


@pytest.mark.parametrize("verb", ["show", "made", "rotate", "revoke"])
def test_another_tenant_s_key_is_not_found(place: Place, verb: str) -> None:
    made = place.json("key", "create", "ci", "--tenant", "other")
    result = place.run("key", verb, made["keyId"])
    assert result.exit_code == 3
    assert "There is no such key" in result.stderr
    assert opens(place, made["key"])


@pytest.mark.parametrize("verb", ["show", "rotate", "revoke"])
def test_a_whole_key_on_the_command_line_is_refused(place: Place, verb: str) -> None:
    made = place.json("key", "create", "ci")
    result = place.run("key", verb, made["key"])
    assert result.exit_code == 2
    assert "must not be on a command line" in result.stderr
    assert made["key"] not in result.output


def test_without_a_pepper_keys_are_looked_at_but_not_made(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = place.json("key", "create", "ci")
    monkeypatch.delenv(PEPPER_VARIABLE)
    for words in (("create", "new"), ("rotate", made["keyId"])):
        result = place.run("key", *words)
        assert result.exit_code == 2
        assert "gantline key pepper" in result.stderr
    assert len(place.json("key", "list")) == 1
    assert place.run("key", "revoke", made["keyId"], "--yes").exit_code == 0


def test_a_pepper_can_be_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PEPPER_VARIABLE, place.run("key", "pepper").stdout)
    assert place.json("key", "create", "ci")["state"] == "active"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create",), "Missing argument"),
        (("create", ""), "#/name: is empty"),
        (("create", "x", "--role", "emperor"), "'--role'"),
        (("create", "x", "--scope", "jobs:all"), "'--scope'"),
        (("create", "x", "--expires-in", "90"), "write 90d"),
        (("create", "x", "--expires-in", "0s"), "must live for some time"),
        (("create", "x", "--expires-in", "-1d"), "write 90d"),
        (("create", "x", "--subject", ""), "#/subjects: is empty"),
        (("create", "x", "--rate-limit", "fast"), "'fast' is not a rate limit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_told(place: Place, words: tuple[str, ...], said: str) -> None:
    result = place.run("key", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_nothing_secret_is_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made = json.loads(place.run("-o", "json", "key", "create", "ci").stdout)
        place.run("key", "rotate", made["keyId"])
    assert made["key"] not in caplog.text
    assert PEPPER not in caplog.text


def test_workers_need_a_key_once_an_operator_says_so(place: Place) -> None:
    assert place.json("key", "workers") == {"required": False}
    refused = place.run("key", "workers", "--require")
    assert refused.exit_code == 2
    assert "have those of 0 workers stop that have no key" in refused.stderr
    assert place.json("key", "workers", "--require", "--yes") == {"required": True}
    assert place.json("key", "workers") == {"required": True}
    (event,) = place.json("audit", "list")
    assert (event["type"], event["aggregate"]) == ("requireWorkerKey", "workers")
    assert place.json("key", "workers", "--waive") == {"required": False}
