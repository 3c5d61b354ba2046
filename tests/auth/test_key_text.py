"""How keys are written: found by scanners, and typing errors are told."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline.auth.api_key import PATTERN, new_key_id, new_key_text, read_key_text
from gantline.contract.errors import InvalidCredentials


def test_a_key_is_read_as_it_was_made() -> None:
    for _ in range(100):
        made = new_key_text(new_key_id())
        assert read_key_text(made.text) == made
        assert re.fullmatch(PATTERN, made.text)


def test_no_two_are_the_same() -> None:
    key_id = new_key_id()
    assert len({new_key_id() for _ in range(1000)}) == 1000
    assert len({new_key_text(key_id).secret for _ in range(1000)}) == 1000


def test_the_secret_is_not_shown() -> None:
    made = new_key_text(new_key_id())
    assert made.secret not in repr(made)


@given(place=st.integers(0, 64), sign=st.characters(codec="ascii"))
def test_a_single_wrong_sign_is_told(place: int, sign: str) -> None:
    text = new_key_text("abcdefghijkl").text
    wrong = text[:place] + sign + text[place + 1 :]
    if wrong != text:
        refused(wrong)


@pytest.mark.parametrize("cut", [1, 6, 20, 60, 64])
def test_a_part_of_a_key_is_told(cut: int) -> None:
    text = new_key_text(new_key_id()).text
    refused(text[:-cut])
    refused(text + text[:cut])


@given(st.text() | st.text("gl_09azAZ").map("gl_".__add__))
def test_anything_else_is_told(text: str) -> None:
    refused(text)


def refused(text: str) -> None:
    with pytest.raises(InvalidCredentials, match="not a whole API key") as caught:
        read_key_text(text)
    if len(text) > 20:
        assert text not in str(caught.value) + caught.value.internal + repr(caught.value)
