"""Text that every store can keep."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantline.contract.outcome import ErrorInfo
from gantline.contract.text import (
    ERROR_CODE_LIMIT,
    ERROR_DETAIL_LIMIT,
    ERROR_MESSAGE_LIMIT,
    REPLACEMENT,
    error_code,
    name_problem,
    storable,
)

# Other work on the machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Hypothesis leaves lone surrogates out of its text unless they are asked for.
any_text = st.text(st.characters(exclude_categories=[]))
long_text = st.builds(lambda piece, times: piece * times, any_text, st.integers(1, 500))


def assert_storable(text: str, limit: int) -> None:
    assert "\0" not in text
    text.encode()
    assert len(text) <= limit


# -- free text ----------------------------------------------------------------------------------


@unhurried
@given(any_text | long_text, st.integers(0, 2000))
def test_storable_text_is_utf8_without_nul_within_the_limit(text: str, limit: int) -> None:
    assert_storable(storable(text, limit), limit)


@unhurried
@given(any_text | long_text, st.integers(64, 2000))
def test_making_text_storable_twice_changes_nothing_more(text: str, limit: int) -> None:
    once = storable(text, limit)
    assert storable(once, limit) == once


@unhurried
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_text_that_is_fine_stays_as_it_is(text: str) -> None:
    assert storable(text, len(text)) == text


def test_what_a_store_refuses_is_replaced_one_by_one() -> None:
    assert storable("a\0b\ud800c\udfffd", 100) == f"a{REPLACEMENT}b{REPLACEMENT}c{REPLACEMENT}d"


def test_text_that_is_too_long_is_cut_and_says_by_how_much() -> None:
    cut = storable("x" * 150, 100)
    assert len(cut) == 100
    assert cut.startswith("xxxx")
    assert cut.endswith(" [50 more characters cut]")


def test_text_of_exactly_the_limit_is_not_cut() -> None:
    assert storable("x" * 100, 100) == "x" * 100


# -- codes --------------------------------------------------------------------------------------


@unhurried
@given(any_text | long_text)
def test_an_error_code_is_always_upper_snake_within_the_limit(text: str) -> None:
    assert re.fullmatch(r"[A-Z0-9_]+", error_code(text))
    assert len(error_code(text)) <= ERROR_CODE_LIMIT


@unhurried
@given(any_text | long_text | st.from_regex(r"[A-Z]{60,63}[-_]+[A-Z]+", fullmatch=True))
def test_an_error_code_is_stable_once_it_is_one(text: str) -> None:
    """A store reads the code back through the same constructor."""
    once = error_code(text)
    assert error_code(once) == once


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NOT_FOUND", "NOT_FOUND"),
        ("not found", "NOT_FOUND"),
        ("payment-declined!", "PAYMENT_DECLINED"),
        ("__x__", "X"),
        ("E42", "E42"),
        ("", "HANDLER_ERROR"),
        ("***", "HANDLER_ERROR"),
        ("\ud800", "HANDLER_ERROR"),
    ],
)
def test_a_code_is_brought_into_its_stable_shape(text: str, code: str) -> None:
    assert error_code(text) == code


# -- names --------------------------------------------------------------------------------------


@unhurried
@given(any_text, st.integers(0, 100))
def test_a_name_without_a_problem_can_be_stored_on_one_line(text: str, limit: int) -> None:
    if name_problem(text, limit) is None:
        assert_storable(text, limit)
        assert len(text.splitlines()) <= 1
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", text)


@unhurried
@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])))
def test_ordinary_text_of_any_script_is_a_name(text: str) -> None:
    assert name_problem(text, len(text)) is None
    if text:
        assert name_problem(text, len(text) - 1) == f"is longer than {len(text) - 1} characters"


# -- errors -------------------------------------------------------------------------------------


@unhurried
@given(any_text, any_text | long_text, any_text | long_text)
def test_an_error_can_always_be_stored(code: str, message: str, detail: str) -> None:
    error = ErrorInfo(code, message, detail)
    assert_storable(error.code, ERROR_CODE_LIMIT)
    assert_storable(error.message, ERROR_MESSAGE_LIMIT)
    assert_storable(error.detail, ERROR_DETAIL_LIMIT)


def test_the_limits_of_an_error_are_exact() -> None:
    error = ErrorInfo("c" * 65, "m" * 1001, "d" * 16_385)
    assert (len(error.code), len(error.message), len(error.detail)) == (64, 1000, 16_384)
