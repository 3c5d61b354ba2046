"""Stream tokens: for one stream, for a minute, only to read; whatever else is sent is refused."""

import base64
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantline.auth.action import Action
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Principal, Role
from gantline.auth.stream_tokens import LONGEST, StreamTokens
from gantline.contract.errors import InvalidCredentials, InvalidInput
from gantline.testing.clock import FakeClock

OLD = "old:0123456789abcdefghijklmnopqrstuvwxyz"
NEW = "new:zyxwvutsrqponmlkjihgfedcba9876543210"
PRINCIPAL = Principal(
    id="user:ä",
    tenant_id="a",
    roles=frozenset({Role.VIEWER}),
    subjects=frozenset({"s1", "s2"}),
    job_types=frozenset({"t"}),
    is_system=True,
)
JOB = "0190a000-0000-7000-8000-000000000001"


def tokens(peppers: str = OLD, clock: FakeClock | None = None) -> StreamTokens:
    return StreamTokens(Peppers.read(peppers), clock=clock or FakeClock())


def test_a_token_stands_for_who_asked_but_only_to_read() -> None:
    seen = tokens().principal_of(tokens().issue(PRINCIPAL, JOB), JOB)
    assert seen == msgspec.structs.replace(PRINCIPAL, scopes=frozenset({Action.READ}))


def test_who_may_not_read_may_not_by_a_token() -> None:
    writer = msgspec.structs.replace(PRINCIPAL, scopes=frozenset({Action.SUBMIT}))
    seen = tokens().principal_of(tokens().issue(writer, JOB), JOB)
    assert seen.scopes == frozenset()


def test_it_fits_into_a_url() -> None:
    token = tokens().issue(PRINCIPAL, JOB)
    assert token.replace("-", "").replace("_", "").isalnum()
    assert len(token) < 400


def test_one_with_too_many_subjects_is_told() -> None:
    many = msgspec.structs.replace(PRINCIPAL, subjects=frozenset(map(str, range(10_000))))
    with pytest.raises(InvalidInput, match="Too many subjects"):
        tokens().issue(many, JOB)


def test_it_is_good_for_a_minute() -> None:
    clock = FakeClock()
    token = tokens(clock=clock).issue(PRINCIPAL, JOB)
    clock.advance(59.9)
    tokens(clock=clock).principal_of(token, JOB)
    clock.advance(0.1)
    with pytest.raises(InvalidCredentials, match="has expired"):
        tokens(clock=clock).principal_of(token, JOB)
    longer = StreamTokens(Peppers.read(OLD), clock=clock, lifetime=timedelta(hours=1))
    again = longer.issue(PRINCIPAL, JOB)
    clock.advance(61)
    longer.principal_of(again, JOB)


def test_it_is_good_for_one_stream() -> None:
    token = tokens().issue(PRINCIPAL, JOB)
    for other in ("all", JOB[:-1] + "2", "", JOB.upper()):
        refused(token, other)


def test_peppers_are_rotated_without_a_break() -> None:
    token = tokens(OLD).issue(PRINCIPAL, JOB)
    assert tokens(f"{NEW} {OLD}").principal_of(token, JOB).id == PRINCIPAL.id
    with pytest.raises(InvalidCredentials, match="not valid"):
        tokens(NEW).principal_of(token, JOB)


def test_a_pepper_of_the_same_id_but_another_value_signs_nothing_for_us() -> None:
    forged = tokens("old:AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHHIIIIJJJJ").issue(PRINCIPAL, JOB)
    refused(forged)


def refused(token: str, stream: str = JOB) -> None:
    with pytest.raises(InvalidCredentials, match="is not valid") as caught:
        tokens().principal_of(token, stream)
    if len(token) > 20:
        assert token not in f"{caught.value!r}{caught.value.internal}"


GOOD = tokens().issue(PRINCIPAL, JOB)


@given(place=st.integers(0, len(GOOD) - 2), sign=st.characters(codec="utf-8"))
def test_no_sign_of_it_can_be_changed(place: int, sign: str) -> None:
    """The last sign has bits that mean nothing; all others are signed."""
    if GOOD[place] != sign:
        refused(GOOD[:place] + sign + GOOD[place + 1 :])


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
@settings(max_examples=300)
def test_whatever_else_is_sent_is_refused(token: str) -> None:
    refused(token)


def test_what_is_too_long_is_not_even_looked_at() -> None:
    refused("A" * (LONGEST + 1))
    refused(base64.urlsafe_b64encode(b"x" * 32 + b"[" * 4000).decode())
