"""API keys on every store: made, used, rotated, revoked, and gone when their time is over."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gantline.auth.action import Action
from gantline.auth.api_key import KeyGrant, KeyState, new_key_text, read_key_text
from gantline.auth.api_key_authenticator import ApiKeyAuthenticator
from gantline.auth.api_keys import KEEP_DEAD, KEYS, USES, ApiKeys
from gantline.auth.authenticator import Credentials
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Principal, Role
from gantline.contract.errors import (
    InvalidCredentials,
    InvalidInput,
    KeyNotFound,
    StoreUnavailable,
    VersionMismatch,
)
from gantline.contract.records import RecordWrite
from gantline.contract.store import JobStore
from gantline.testing.clock import FakeClock
from gantline.testing.conformance import StoreHarness
from gantline.testing.faults import Call, intercepted, losing_answers
from tests.harness import MemoryHarness, PostgresHarness, SqliteHarness

HOUR = timedelta(hours=1)
PEPPERS = Peppers.read("one:0123456789abcdefghijklmnopqrstuvwxyz")
GRANT = KeyGrant(name="ci", tenant_id="a")


class Office:
    """A store, the keys in it, and who comes with one."""

    def __init__(self, store: JobStore, clock: FakeClock, peppers: Peppers = PEPPERS) -> None:
        self.store = store
        self.clock = clock
        self.calls: list[str] = []
        self.keys = ApiKeys(intercepted(store, self._noted), peppers, clock=clock)
        self.authenticator = ApiKeyAuthenticator(self.keys)

    async def _noted(self, verb: str, call: Call) -> Any:
        self.calls.append(verb)
        return await call()

    def another(self, peppers: Peppers = PEPPERS) -> "Office":
        """Another process on the same store."""
        return Office(self.store, self.clock, peppers)

    async def made(self, grant: KeyGrant = GRANT, **options: Any) -> str:
        return (await self.keys.create(grant, **options)).text

    async def comes(self, text: str) -> Principal:
        principal = await self.authenticator.authenticate(bearing(text))
        assert principal is not None
        return principal

    async def answers(self, text: str) -> bool:
        """Whether a key is good; what it is told is of no interest."""
        try:
            await self.comes(text)
        except InvalidCredentials:
            return False
        return True

    async def refuses(self, text: str, why: str) -> None:
        with pytest.raises(InvalidCredentials, match=why) as caught:
            await self.authenticator.authenticate(bearing(text))
        secret = text.rpartition("_")[2] or text
        error = caught.value
        assert secret not in f"{error} {error!r} {error.internal} {error.args}"


def bearing(text: str) -> Credentials:
    return Credentials(headers={"authorization": f"Bearer {text}"})


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def office(request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    harness: StoreHarness
    if request.param == "postgres":
        harness = PostgresHarness(request.getfixturevalue("postgres"))
    else:
        harness = MemoryHarness() if request.param == "memory" else SqliteHarness()
    yield Office(await harness.open(), harness.clock)
    await harness.close()


def key_id_of(text: str) -> str:
    return read_key_text(text).key_id


async def test_a_key_stands_for_what_was_granted(office: Office) -> None:
    grant = KeyGrant(
        name="ci",
        tenant_id="a",
        roles=frozenset({Role.OPERATOR, Role.VIEWER}),
        scopes=frozenset({Action.READ, Action.CANCEL}),
        subjects=frozenset({"s1", "s2"}),
        job_types=frozenset({"t"}),
        is_system=True,
    )
    text = await office.made(grant)
    principal = await office.comes(text)
    assert principal == grant.principal(key_id_of(text))
    assert principal.id == f"key:{key_id_of(text)}"
    assert principal.scopes == grant.scopes


async def test_a_key_can_come_by_either_header(office: Office) -> None:
    text = await office.made()
    expected = await office.comes(text)
    for headers in ({"x-api-key": text}, {"authorization": f"bearer  {text} ", "x-api-key": text}):
        assert await office.authenticator.authenticate(Credentials(headers=headers)) == expected


async def test_what_is_no_key_is_somebody_else_s(office: Office) -> None:
    for headers in (
        {},
        {"authorization": "Basic d2w6eA=="},
        {"authorization": "Bearer a.b.c"},
        {"cookie": "gl_x"},
        {"authorization": "gl_abc"},
    ):
        assert await office.authenticator.authenticate(Credentials(headers=headers)) is None
    assert office.calls == []


async def test_two_keys_at_once_are_refused(office: Office) -> None:
    one, other = await office.made(), await office.made()
    headers = {"authorization": f"Bearer {one}", "x-api-key": other}
    with pytest.raises(InvalidCredentials, match="Two API keys"):
        await office.authenticator.authenticate(Credentials(headers=headers))
    await office.refuses(f"{one}, Bearer {one}", "not a whole API key")


async def test_a_typing_error_never_reaches_the_store(office: Office) -> None:
    text = await office.made()
    office.calls.clear()
    await office.refuses(text[:-1] + ("a" if text[-1] != "a" else "b"), "not a whole API key")
    await office.refuses(text[:-1], "not a whole API key")
    await office.refuses("gl_nonsense", "not a whole API key")
    assert office.calls == []


async def test_a_wrong_secret_and_an_unknown_id_are_told_alike(office: Office) -> None:
    text = await office.made()
    wrong, unknown = new_key_text(key_id_of(text)).text, new_key_text("000000000000").text
    for bad in (wrong, unknown):
        with pytest.raises(InvalidCredentials) as caught:
            await office.comes(bad)
        assert str(caught.value) == "The API key is not valid. Ask for a new one."


async def test_the_same_is_asked_of_the_store_whatever_the_key_is(office: Office) -> None:
    """And computed: see the next test. What is written down about a use comes after the answer."""
    good, revoked = await office.made(), await office.made()
    await office.keys.revoke(key_id_of(revoked), tenant_id="a")
    kinds = {
        "good": good,
        "wrong secret": new_key_text(key_id_of(good)).text,
        "unknown id": new_key_text("000000000000").text,
        "revoked": revoked,
    }
    asked = {}
    for name, text in kinds.items():
        process = office.another()
        for _ in range(3):
            await process.answers(text)
        asked[name] = [verb for verb in process.calls if verb != "write_records"]
    assert set(map(tuple, asked.values())) == {("read_records",)}, asked


async def test_the_same_is_computed_whatever_the_key_is(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    mac = Peppers.mac

    def counted(self: Peppers, purpose: str, message: bytes, *, pepper_id: str) -> bytes:
        computed.append(purpose)
        return mac(self, purpose, message, pepper_id=pepper_id)

    good = await office.made()
    rotated = await office.made()
    await office.keys.rotate(key_id_of(rotated), tenant_id="a")
    monkeypatch.setattr(Peppers, "mac", counted)
    for text in (good, rotated, new_key_text(key_id_of(good)).text, new_key_text("0" * 12).text):
        computed.clear()
        await office.answers(text)
        assert len(computed) == 2


async def test_a_secret_is_stored_only_as_what_proves_it(office: Office) -> None:
    text = await office.made()
    secret = text.rpartition("_")[2]
    (record,) = await office.store.read_records(KEYS)
    assert secret[:43].encode() not in record.value
    stored = json.loads(record.value)
    assert set(stored["secrets"][0]) == {"pepperId", "mac", "until"}
    assert stored["secrets"][0]["pepperId"] == "one"


async def test_what_is_stored_proves_nothing_about_another_key(office: Office) -> None:
    """Whoever can write records but has no pepper cannot make a key his own."""
    mine, theirs = await office.made(), await office.made(KeyGrant(name="x", tenant_id="b"))
    records = {record.key: record for record in await office.store.read_records(KEYS)}
    my_secret = json.loads(records[key_id_of(mine)].value)["secrets"]
    forged = json.loads(records[key_id_of(theirs)].value) | {"secrets": my_secret}
    value = msgspec.json.encode(forged)
    await office.store.write_records([RecordWrite(KEYS, key_id_of(theirs), value)])
    stolen = msgspec.structs.replace(read_key_text(mine), key_id=key_id_of(theirs))
    await office.refuses(stolen.text, "not valid")


async def test_a_key_expires(office: Office) -> None:
    text = await office.made(lifetime=HOUR)
    await office.comes(text)
    office.clock.advance(HOUR - timedelta(seconds=1))
    await office.comes(text)
    office.clock.advance(1)
    await office.refuses(text, "is expired")
    (key,) = await office.keys.listed(tenant_id="a")
    assert key.state is KeyState.EXPIRED


async def test_who_has_not_the_secret_is_not_told_that_a_key_expired(office: Office) -> None:
    text = await office.made(lifetime=HOUR)
    office.clock.advance(HOUR)
    await office.refuses(new_key_text(key_id_of(text)).text, "is not valid")


async def test_a_revoked_key_is_good_for_nothing_at_once(office: Office) -> None:
    text = await office.made()
    await office.comes(text)
    key = await office.keys.revoke(key_id_of(text), tenant_id="a")
    assert key.state is KeyState.REVOKED
    await office.refuses(text, "is revoked")
    again = await office.keys.revoke(key_id_of(text), tenant_id="a")
    assert again.revoked_at == key.revoked_at


async def test_a_revocation_is_seen_by_other_processes_within_seconds(office: Office) -> None:
    text, other = await office.made(), office.another()
    await other.comes(text)
    await office.keys.revoke(key_id_of(text), tenant_id="a")
    office.clock.advance(4.9)
    await other.comes(text)
    office.clock.advance(0.2)
    await other.refuses(text, "is revoked")


async def test_a_rotated_key_has_two_secrets_for_a_while(office: Office) -> None:
    old = await office.made()
    issued = await office.keys.rotate(key_id_of(old), tenant_id="a", overlap=HOUR)
    assert issued.key.old_secret_until == office.clock.now() + HOUR
    assert await office.comes(old) == await office.comes(issued.text)
    office.clock.advance(HOUR)
    await office.comes(issued.text)
    await office.refuses(old, "is not valid")
    assert (await office.keys.get(key_id_of(old), tenant_id="a")).old_secret_until is None


async def test_a_new_secret_is_good_at_once_in_other_processes_too(office: Office) -> None:
    old, other = await office.made(), office.another()
    await other.comes(old)
    office.clock.advance(1)
    issued = await office.keys.rotate(key_id_of(old), tenant_id="a", overlap=HOUR)
    await other.comes(issued.text)
    await other.comes(old)


async def test_a_wrong_secret_asks_the_store_no_more_than_twice_a_second(office: Office) -> None:
    good = await office.made()
    wrong = new_key_text(key_id_of(good)).text
    other = office.another()
    for _ in range(50):
        await other.answers(wrong)
        office.clock.advance(0.1)
    assert other.calls.count("read_records") <= 11


async def test_a_key_never_has_three_secrets(office: Office) -> None:
    first = await office.made()
    second = (await office.keys.rotate(key_id_of(first), tenant_id="a")).text
    third = (await office.keys.rotate(key_id_of(first), tenant_id="a")).text
    assert [await office.answers(text) for text in (first, second, third)] == [False, True, True]


async def test_a_rotation_without_overlap_ends_the_old_secret_at_once(office: Office) -> None:
    old = await office.made()
    await office.comes(old)
    new = await office.keys.rotate(key_id_of(old), tenant_id="a", overlap=timedelta(0))
    await office.refuses(old, "is not valid")
    await office.comes(new.text)


async def test_a_rotation_can_give_a_key_more_time(office: Office) -> None:
    old = await office.made(lifetime=HOUR)
    kept = await office.keys.rotate(key_id_of(old), tenant_id="a")
    assert kept.key.expires_at == office.clock.now() + HOUR
    longer = await office.keys.rotate(key_id_of(old), tenant_id="a", lifetime=3 * HOUR)
    assert longer.key.expires_at == office.clock.now() + 3 * HOUR


async def test_a_dead_key_cannot_be_rotated(office: Office) -> None:
    text = await office.made()
    await office.keys.revoke(key_id_of(text), tenant_id="a")
    with pytest.raises(InvalidInput, match="is revoked"):
        await office.keys.rotate(key_id_of(text), tenant_id="a")


async def test_a_tenant_s_keys_are_nobody_else_s(office: Office) -> None:
    key_id = key_id_of(await office.made())
    assert await office.keys.listed(tenant_id="b") == []
    assert [key.id for key in await office.keys.listed(tenant_id=None)] == [key_id]
    for act in (office.keys.get, office.keys.rotate, office.keys.revoke):
        for wrong in (("b", key_id), ("a", key_id[:-1]), ("a", ""), ("a", "x" * 12)):
            with pytest.raises(KeyNotFound):
                await act(wrong[1], tenant_id=wrong[0])
    assert (await office.keys.get(key_id, tenant_id="a")).state is KeyState.ACTIVE


async def test_a_dead_key_is_shown_for_a_while_and_then_forgotten(office: Office) -> None:
    expired, revoked = await office.made(lifetime=HOUR), await office.made()
    lasting = await office.made()
    await office.keys.revoke(key_id_of(revoked), tenant_id="a")
    office.clock.advance(KEEP_DEAD)
    await office.store.prune([], limit=10)
    assert {key.id for key in await office.keys.listed(tenant_id="a")} == {
        key_id_of(expired),
        key_id_of(lasting),
    }
    office.clock.advance(HOUR)
    await office.store.prune([], limit=10)
    assert [key.id for key in await office.keys.listed(tenant_id="a")] == [key_id_of(lasting)]


async def test_the_last_use_is_written_down_once_an_hour(office: Office) -> None:
    text = await office.made()
    assert (await office.keys.get(key_id_of(text), tenant_id="a")).last_used_at is None
    first = office.clock.now()
    for _ in range(59):
        await office.comes(text)
        office.clock.advance(60)
    assert office.calls.count("write_records") == 2  # the key itself, and its first use
    office.clock.advance(60)
    await office.comes(text)
    (key,) = await office.keys.listed(tenant_id="a")
    assert key.last_used_at == first + HOUR
    assert (await office.keys.get(key.id, tenant_id="a")).last_used_at == first + HOUR


async def test_a_use_that_cannot_be_written_down_is_no_reason_to_refuse(office: Office) -> None:
    text = await office.made()

    async def cannot_write(verb: str, call: Call) -> Any:
        if verb == "write_records":
            raise StoreUnavailable("The disk is full.")
        return await call()

    broken = Office(intercepted(office.store, cannot_write), office.clock)
    assert await broken.answers(text)
    assert await office.store.read_records(USES) == []


async def test_nobody_is_let_in_while_the_store_cannot_be_asked(office: Office) -> None:
    text = await office.made()
    down = [False]

    async def may_be_down(verb: str, call: Call) -> Any:
        if down[0]:
            raise StoreUnavailable("Nobody answers.")
        return await call()

    other = Office(intercepted(office.store, may_be_down), office.clock)
    await other.comes(text)
    down[0] = True
    await other.comes(text)  # remembered for some seconds
    office.clock.advance(5)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await other.comes(text)
    down[0] = False
    await other.comes(text)


async def test_a_lost_answer_makes_no_second_key(office: Office) -> None:
    lossy = Office(losing_answers(office.store), office.clock)
    text = await lossy.made()
    assert len(await office.keys.listed(tenant_id="a")) == 1
    new = await lossy.keys.rotate(key_id_of(text), tenant_id="a")
    assert await office.answers(new.text)


async def test_peppers_are_rotated_without_a_break(office: Office) -> None:
    old_text = await office.made()
    both = Peppers.read(
        "two:zyxwvutsrqponmlkjihgfedcba9876543210 one:0123456789abcdefghijklmnopqrstuvwxyz"
    )
    later = office.another(both)
    new_text = await later.made()
    assert await later.answers(old_text)
    assert await later.answers(new_text)
    assert not await office.answers(new_text)  # its pepper is not known there
    rotated = await later.keys.rotate(key_id_of(old_text), tenant_id="a", overlap=timedelta(0))
    only_new = office.another(Peppers.read("two:zyxwvutsrqponmlkjihgfedcba9876543210"))
    assert [await only_new.answers(text) for text in (old_text, new_text, rotated.text)] == [
        False,
        True,
        True,
    ]


async def test_a_record_that_cannot_be_read_opens_nothing(office: Office) -> None:
    text, other = await office.made(), await office.made()
    for value in (b"{", b"null", b'{"grant":{"name":"x","roles":["emperor"]}}', b"\xff"):
        await office.store.write_records([RecordWrite(KEYS, key_id_of(text), value)])
        assert not await office.another().answers(text)
        assert [key.id for key in await office.keys.listed(tenant_id=None)] == [key_id_of(other)]


async def test_of_two_who_change_a_key_at_once_neither_is_lost(office: Office) -> None:
    text = await office.made()
    other = office.another()
    rotated, revoked = await asyncio.gather(
        office.keys.rotate(key_id_of(text), tenant_id="a"),
        other.keys.revoke(key_id_of(text), tenant_id="a"),
        return_exceptions=True,
    )
    assert not isinstance(revoked, BaseException)
    key = await office.keys.get(key_id_of(text), tenant_id="a")
    assert key.state is KeyState.REVOKED
    assert isinstance(rotated, InvalidInput) or key.rotated_at is not None


async def test_a_key_that_never_stands_still_is_given_up(office: Office) -> None:
    text = await office.made()

    async def changed_by_others(verb: str, call: Call) -> Any:
        if verb == "write_records":
            (record,) = await office.store.read_records(KEYS)
            await office.store.write_records([RecordWrite(KEYS, record.key, record.value)])
        return await call()

    unlucky = Office(intercepted(office.store, changed_by_others), office.clock)
    with pytest.raises(VersionMismatch, match="kept changing"):
        await unlucky.keys.revoke(key_id_of(text), tenant_id="a")


@pytest.mark.parametrize(
    "grant",
    [
        KeyGrant(name=""),
        KeyGrant(name="x" * 129),
        KeyGrant(name="x\n"),
        KeyGrant(name="x", tenant_id=""),
        KeyGrant(name="x", subjects=frozenset({""})),
        KeyGrant(name="x", subjects=frozenset(map(str, range(1001)))),
        KeyGrant(name="x", job_types=frozenset({"\0"})),
    ],
    ids=range(7),
)
async def test_a_grant_must_name_what_can_be(grant: KeyGrant) -> None:
    office = Office(await MemoryHarness().open(), FakeClock())
    with pytest.raises(InvalidInput):
        await office.made(grant)
    with pytest.raises(InvalidInput, match="some time"):
        await office.made(lifetime=timedelta(0))
    assert await office.store.read_records(KEYS) == []


async def test_nothing_secret_is_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    office = Office(await MemoryHarness().open(), clock)
    with caplog.at_level(logging.DEBUG):
        issued = await office.keys.create(GRANT)
        rotated = await office.keys.rotate(issued.key.id, tenant_id="a", overlap=timedelta(0))
        for text in (issued.text, rotated.text, new_key_text("0" * 12).text, rotated.text[:-1]):
            await office.answers(text)
        await office.keys.revoke(issued.key.id, tenant_id="a")
        await office.answers(rotated.text)
        stored = await office.keys.lookup(issued.key.id)
    shown = f"{caplog.text} {issued!r} {rotated!r} {stored!r} {bearing(rotated.text)!r}"
    assert "was refused: unknown id" in shown
    for text in (issued.text, rotated.text):
        assert text not in shown
        assert text.rpartition("_")[2][:43] not in shown
    assert stored is not None
    assert stored.secrets[0].mac.hex() not in shown
    assert repr(stored.secrets[0].mac)[2:-1] not in shown
