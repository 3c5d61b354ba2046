"""Payloads and results: small JSON data, and what becomes of everything else."""

import dataclasses
import threading
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantline.contract.codec import codec_for, encode_result
from gantline.contract.errors import (
    Code,
    InvalidInput,
    InvalidPayload,
    PayloadTooLarge,
    ResultNotStorable,
)
from gantline.contract.payload import (
    DEFAULT_PAYLOAD_LIMIT,
    DEFAULT_RESULT_LIMIT,
    check_encoded,
    encode_payload,
    fingerprint,
)

# Other work on the machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclasses.dataclass
class Point:
    x: int
    label: object = "p"


class Shape(msgspec.Struct):
    name: str
    corner: Point
    cargo: Any = None


class Named(TypedDict):
    name: str


def nested(levels: int, core: Any = 1) -> Any:
    """Make `levels` lists around a core."""
    for _ in range(levels):
        core = [core]
    return core


def keyed(levels: int, core: Any = 1) -> Any:
    for _ in range(levels):
        core = {"k": core}
    return core


def encoded(value: Any) -> bytes:
    return encode_payload(value).body


def json_values() -> st.SearchStrategy[Any]:
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text()
    )
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
    )


# -- what a payload may be ----------------------------------------------------------------------


@unhurried
@given(json_values())
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    body = encoded(value)
    assert msgspec.json.decode(body) == value
    assert check_encoded(body) == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(1), {"x": 1, "label": "p"}),
        (Shape("s", Point(2)), {"name": "s", "corner": {"x": 2, "label": "p"}, "cargo": None}),
        (Named(name="n"), {"name": "n"}),
        ({"at": datetime(2026, 1, 1, 12, tzinfo=UTC)}, {"at": "2026-01-01T12:00:00Z"}),
        ({"id": UUID(int=7)}, {"id": "00000000-0000-0000-0000-000000000007"}),
        ({"price": Decimal("1.50")}, {"price": "1.50"}),
        ({"pair": (1, 2)}, {"pair": [1, 2]}),
        ({"empty": frozenset()}, {"empty": []}),
        (2**70, 2**70),
    ],
    ids=["dataclass", "Struct", "TypedDict", "datetime", "UUID", "Decimal", "tuple", "set", "int"],
)  # fmt: skip
def test_anything_that_has_a_json_form_may_be_a_payload(value: Any, plain: Any) -> None:
    assert msgspec.json.decode(encoded(value)) == plain
    assert check_encoded(encoded(value)) == plain


# -- size ---------------------------------------------------------------------------------------


def test_a_payload_may_be_as_large_as_the_limit_and_no_larger() -> None:
    assert DEFAULT_PAYLOAD_LIMIT == 64 * 1024
    largest = "x" * (DEFAULT_PAYLOAD_LIMIT - 2)
    assert len(encoded(largest)) == DEFAULT_PAYLOAD_LIMIT
    assert check_encoded(encoded(largest)) == largest
    for refuse in (
        lambda: encode_payload(largest + "x"),
        lambda: check_encoded(msgspec.json.encode(largest + "x")),
    ):
        with pytest.raises(PayloadTooLarge) as raised:
            refuse()
        assert raised.value.code == Code.PAYLOAD_TOO_LARGE
        assert "65537 bytes; the limit is 65536" in raised.value.cause


def test_the_size_is_counted_in_bytes_not_characters() -> None:
    assert encode_payload("éé", limit=6).body == b'"\xc3\xa9\xc3\xa9"'
    with pytest.raises(PayloadTooLarge):
        encode_payload("éé", limit=5)


def test_the_size_is_checked_before_the_text_is_decoded() -> None:
    with pytest.raises(PayloadTooLarge):
        check_encoded(b"[" * 11, limit=10)


# -- what JSON cannot say -----------------------------------------------------------------------


@pytest.mark.parametrize("cargo", [b"x", bytearray(b"x"), memoryview(b"x")], ids=type)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda cargo: cargo,
        lambda cargo: [1, cargo],
        lambda cargo: {"k": {"k": cargo}},
        lambda cargo: (cargo,),
        lambda cargo: Point(1, cargo),
        lambda cargo: Shape("s", Point(1), cargo),
        lambda cargo: nested(60, {"k": cargo}),
    ],
    ids=["alone", "list", "dict", "tuple", "dataclass", "Struct", "deep"],
)
def test_bytes_are_refused_at_any_depth(wrap: Any, cargo: Any) -> None:
    with pytest.raises(InvalidInput, match="contains bytes") as raised:
        encode_payload(wrap(cargo))
    assert raised.value.code == Code.VALIDATION_ERROR


def test_bytes_are_refused_as_a_key_too() -> None:
    with pytest.raises(InvalidInput):
        encode_payload({"k": {b"secret": 1}})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: [n], lambda n: Point(1, {"k": n})])
def test_a_number_that_json_cannot_say_is_refused(wrap: Any, number: float) -> None:
    with pytest.raises(InvalidInput, match="which JSON cannot say"):
        encode_payload(wrap(number))


@pytest.mark.parametrize("value", ["\ud800", ["a", "\udfff"], {"\ud800": 1}, Point(1, "\ud800")])
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="lone surrogate"):
        encode_payload(value)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'"\\ud800"', b'"\xff"', b"NaN", b"Infinity", b"1e400", b"1 2", b"1" * 5000],
)
def test_text_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput) as raised:
        check_encoded(body)
    assert raised.value.code == Code.VALIDATION_ERROR


@pytest.mark.parametrize(
    "value", [object(), threading.Lock(), print, Point, 1j, iter([1])], ids=type
)
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="not JSON data"):
        encode_payload({"k": value})


# -- depth --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [nested, keyed])
def test_a_payload_may_be_64_levels_deep_and_no_deeper(wrap: Any) -> None:
    deepest = wrap(64)
    assert check_encoded(encoded(deepest)) == deepest
    with pytest.raises(InvalidInput, match="deeper than 64 levels"):
        encode_payload(wrap(65))
    with pytest.raises(InvalidInput, match="deeper than 64 levels"):
        check_encoded(msgspec.json.encode(wrap(65)))


@pytest.mark.parametrize("core", [[], {}])
def test_an_empty_container_counts_as_a_level_too(core: Any) -> None:
    assert check_encoded(encoded(nested(63, core))) == nested(63, core)
    with pytest.raises(InvalidInput, match="deeper than 64 levels"):
        encode_payload(nested(64, core))
    with pytest.raises(InvalidInput, match="deeper than 64 levels"):
        check_encoded(msgspec.json.encode(nested(64, core)))


def test_depth_beyond_the_stack_is_refused_in_the_same_words() -> None:
    with pytest.raises(InvalidInput, match="deeper than 64 levels"):
        encode_payload(nested(100_000))
    with pytest.raises(InvalidInput, match="deeper than 64 levels"):
        check_encoded(b"[" * 30_000 + b"]" * 30_000)


def test_a_payload_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="deeper than 64 levels"):
        encode_payload(loop)


# -- fingerprint --------------------------------------------------------------------------------


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw a value, and the same value with the keys of every object in another order."""
    value = draw(json_values())

    def shuffle(item: Any) -> Any:
        match item:
            case dict():
                keys = draw(st.permutations(list(item)))
                return {key: shuffle(item[key]) for key in keys}
            case list():
                return [shuffle(one) for one in item]
            case _:
                return item

    return value, shuffle(value)


def fingerprint_of(text: bytes, version: int) -> bytes:
    return fingerprint(msgspec.json.decode(text), version)


@unhurried
@given(shuffled(), st.integers(1, 2**31 - 1))
def test_the_fingerprint_ignores_the_order_of_keys_and_spacing(
    pair: tuple[Any, Any], version: int
) -> None:
    value, other_order = (msgspec.json.encode(item) for item in pair)
    spaced = msgspec.json.format(other_order, indent=3)
    assert fingerprint_of(value, version) == fingerprint_of(other_order, version)
    assert fingerprint_of(value, version) == fingerprint_of(spaced, version)
    assert len(fingerprint_of(value, version)) == 32


@unhurried
@given(json_values(), json_values())
def test_the_fingerprint_tells_other_data_apart(one: Any, other: Any) -> None:
    first, second = msgspec.json.encode(one), msgspec.json.encode(other)
    same = msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    assert (fingerprint_of(first, 1) == fingerprint_of(second, 1)) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":2}'),
        (b'{"a":1}', b'{"b":1}'),
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":1}', b'{"a":1,"b":null}'),
        (b"[1,2]", b"[2,1]"),
        (b"null", b"{}"),
        (b"0", b"false"),
        (b"9007199254740993", b"9007199254740992"),
    ],
)
def test_payloads_that_differ_have_other_fingerprints(one: bytes, other: bytes) -> None:
    assert fingerprint_of(one, 1) != fingerprint_of(other, 1)


@unhurried
@given(json_values())
def test_what_was_encoded_has_the_fingerprint_of_its_text(value: Any) -> None:
    body, data = encode_payload(value)
    assert fingerprint(data, 1) == fingerprint_of(body, 1)


@pytest.mark.parametrize(
    "value",
    [
        Shape("s", Point(2), cargo=(1, {2: "b", 10: "a"})),
        {10: 1, 9: {"z": 1, "a": 2}},
        {1.5: (), "at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"empty": frozenset(), "price": Decimal("1.50")},
    ],
)
def test_what_json_turns_into_something_else_has_the_fingerprint_of_its_text(value: Any) -> None:
    body, data = encode_payload(value)
    assert fingerprint(data, 1) == fingerprint_of(body, 1)


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {"1": 1, "deep": [{"2": 1, 2: 1}]}])
def test_two_keys_that_are_one_in_json_are_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"has the key . twice in JSON"):
        encode_payload(value)


def test_the_same_data_in_another_version_has_another_fingerprint() -> None:
    assert fingerprint_of(b"1", 1) != fingerprint_of(b"1", 2)
    assert fingerprint_of(b"1", 11) != fingerprint_of(b"11", 1)


# -- results ------------------------------------------------------------------------------------


class Unspeakable:
    """Raises whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("no str")

    __repr__ = __str__

    def __iter__(self) -> Any:
        raise RuntimeError("no iteration")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = object.__hash__


class BrokenDict(dict[str, int]):
    def __iter__(self) -> Any:
        raise RuntimeError("no iteration")

    values = items = keys = __iter__


class BrokenText(str):
    def __str__(self) -> str:
        raise RuntimeError("no str")


class BrokenNumber(Decimal):
    def __str__(self) -> str:
        raise RuntimeError("no str")


class BrokenZone(tzinfo):
    def utcoffset(self, instant: datetime | None) -> timedelta:
        raise LookupError("no offset")

    def dst(self, instant: datetime | None) -> timedelta:
        raise LookupError("no summer")

    def tzname(self, instant: datetime | None) -> str:
        raise LookupError("no name")


class Strange(Enum):
    VALUE = object()


@dataclasses.dataclass(slots=True)
class Hollow:
    missing: int


def hollow() -> Hollow:
    return Hollow.__new__(Hollow)


def cyclic() -> Any:
    loop: dict[str, Any] = {}
    loop["self"] = [loop]
    return loop


def hostile_values() -> st.SearchStrategy[Any]:
    makers = [
        object, Unspeakable, hollow, cyclic, threading.Lock,
        lambda: BrokenDict(a=1),
        lambda: BrokenText("t"),
        lambda: BrokenNumber(1),
        lambda: datetime(2026, 1, 1, tzinfo=BrokenZone()),
        lambda: Strange.VALUE,
        lambda: {Unspeakable(): 1},
        lambda: {(1, 2): 3},
        lambda: (n for n in [1]),
        lambda: iter([1]),
        lambda: RuntimeError("an error"),
        lambda: b"bytes",
        lambda: float("nan"),
        lambda: "\ud800",
        lambda: "x" * 20_000,
        lambda: nested(100),
        lambda: nested(50_000),
        lambda: Decimal("sNaN"),
        lambda: 10**5000,
        lambda: msgspec.Raw(b"{"),
        lambda: Unspeakable,
    ]  # fmt: skip
    leaves = json_values() | st.sampled_from(makers).map(lambda make: make())
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            | inner.map(lambda item: Point(1, item))
        ),
        max_leaves=5,
    )


PLAIN = codec_for(Any)


@unhurried
@given(hostile_values())
def test_a_result_is_encoded_or_the_one_error_says_why_not(value: Any) -> None:
    try:
        body, omitted = encode_result(value, PLAIN)
    except ResultNotStorable:
        return
    assert omitted is None
    if body is not None:
        assert len(body) <= DEFAULT_RESULT_LIMIT
        check_encoded(body)


def test_no_result_is_not_an_omitted_result() -> None:
    assert encode_result(None, PLAIN) == (None, None)
    assert encode_result(None, None) == (None, "its type omits it")


@pytest.mark.parametrize("value", [0, "", False, [], {}])
def test_an_empty_result_is_kept(value: Any) -> None:
    assert encode_result(value, PLAIN) == (msgspec.json.encode(value), None)


def test_a_result_may_be_as_large_as_its_limit_and_no_larger() -> None:
    assert DEFAULT_RESULT_LIMIT == 16 * 1024
    largest = "x" * (DEFAULT_RESULT_LIMIT - 2)
    assert encode_result(largest, PLAIN) == (b'"' + largest.encode() + b'"', None)
    with pytest.raises(ResultNotStorable, match="has 16385 bytes; the limit is 16384"):
        encode_result(largest + "x", PLAIN)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        b"x",
        float("nan"),
        "\ud800",
        nested(65),
        cyclic(),
        BrokenNumber(1),
        datetime(2026, 1, 1, tzinfo=BrokenZone()),
    ],
    ids=type,
)
def test_a_result_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ResultNotStorable, match=r"^The result cannot be stored: # "):
        encode_result(value, PLAIN)


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (b"x", "#"),
        ([1, b"x"], "#/1"),
        ({"a/b": [{"c": float("inf")}]}, "#/a~1b/0/c"),
        (Shape("s", Point(1, object())), "#/corner/label"),
        ({"k": {b"secret": 1}}, "#/k"),
    ],
)
def test_what_json_cannot_say_is_pointed_to(value: Any, pointer: str) -> None:
    with pytest.raises(InvalidPayload) as raised:
        encode_payload(value)
    assert [one.pointer for one in raised.value.problems] == [pointer]
