"""Peppers: read from the environment, told apart by their ids, and never told."""

import pytest

from gantline.auth.peppers import PEPPER_VARIABLE, Peppers, new_pepper
from gantline.contract.errors import AuthMisconfigured

GOOD = "correct-horse-battery-staple-0123456789"


def test_the_first_is_the_one_in_use() -> None:
    peppers = Peppers.from_environment({PEPPER_VARIABLE: f"new:{GOOD}  old:{GOOD}x"})
    assert peppers.current == "new"
    assert "old" in peppers
    assert "older" not in peppers


def test_one_without_an_id_is_the_first_of_its_kind() -> None:
    peppers = Peppers.read(GOOD)
    assert peppers.current == "1"
    assert Peppers.read(f"1:{GOOD}").mac("x", b"m", pepper_id="1") == peppers.mac(
        "x", b"m", pepper_id="1"
    )


def test_every_pepper_and_every_purpose_has_a_key_of_its_own() -> None:
    peppers = Peppers.read(f"a:{GOOD} b:{GOOD}x")
    macs = {peppers.mac(use, b"m", pepper_id=one) for one in "ab" for use in ("keys", "tokens")}
    assert len(macs) == 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not set"),
        ("  ", "not set"),
        ("1:short", "less than 32"),
        ("short", "less than 32"),
        (f"a:{GOOD} a:{GOOD}x", "two peppers of the id a"),
        (f"a b:{GOOD}", "less than 32"),
        (f"ä:{GOOD}", "letters"),
        (f":{GOOD}", "letters"),
        (f"x:{'a' * 64}", "not random"),
    ],
)
def test_what_is_wrong_is_told_and_the_secret_is_not(text: str, problem: str) -> None:
    with pytest.raises(AuthMisconfigured, match=problem) as caught:
        Peppers.from_environment({PEPPER_VARIABLE: text})
    assert "gantline key pepper" in caught.value.next_step
    assert GOOD not in str(caught.value)
    assert "short" not in str(caught.value)


def test_they_are_hidden() -> None:
    assert repr(Peppers.read(f"a:{GOOD}")) == "Peppers(a)"


def test_a_new_one_is_good_and_new() -> None:
    first, second = new_pepper(), new_pepper()
    assert first != second
    assert Peppers.read(first).current == "1"
