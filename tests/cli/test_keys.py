"""gantline key: keys are made, shown once, rotated and revoked."""

import asyncio
import json
import logging

import pytest

from gantline.auth.action import Action
from gantline.auth.api_key_authenticator import ApiKeyAuthenticator
from gantline.auth.api_keys import ApiKeys
from gantline.auth.authenticator import Credentials
from gantline.auth.peppers import PEPPER_VARIABLE, Peppers
from gantline.auth.principal import Principal, Role
from gantline.auth.rate_limit import RateLimit
from gantline.contract.clock import SystemClock
from gantline.contract.errors import InvalidCredentials
from gantline.stores import store_from_url
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


@pytest.mark.parametrize("verb", ["show", "rotate", "revoke"])
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
