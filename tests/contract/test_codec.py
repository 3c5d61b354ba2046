"""Typed payloads: what is wrong is pointed at, and text out of URLs becomes fields."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from gantline.contract.codec import codec_for
from gantline.contract.errors import InvalidPayload
from gantline.contract.pointer import problem_from

ID = "00000000-0000-0000-0000-000000000007"


class Inner(msgspec.Struct):
    numbers: dict[str, int]
    by_number: dict[int, str] = msgspec.field(default_factory=dict)


class Outer(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    doc_id: UUID
    inner: list[Inner] = msgspec.field(default_factory=list)
    is_big: bool = False


class Model(pydantic.BaseModel):
    doc_id: UUID = pydantic.Field(alias="docId")
    sizes: list[int] = []


class Written(pydantic.BaseModel):
    shown: str = pydantic.Field(default="", serialization_alias="displayed")


@dataclass
class Plain:
    size: int
    names: list[str] | None = None


class Dated(msgspec.Struct):
    at: datetime


@pytest.mark.parametrize(
    ("annotation", "body", "problems"),
    [
        (Outer, b"{}", [("#/docId", "is missing")]),
        (Outer, b'{"docId": 5}', [("#/docId", "expected uuid, got int")]),
        (Outer, b'{"docId": "x"}', [("#/docId", "invalid UUID")]),
        (Outer, b'{"a/b~c": 1}', [("#/a~1b~0c", "is not known here")]),
        (Outer, b'{"docId": "%b", "inner": [{}]}', [("#/inner/0/numbers", "is missing")]),
        (
            Outer,
            b'{"docId": "%b", "inner": [{"numbers": {"a": "b"}}]}',
            [("#/inner/0/numbers", "expected int, got str")],
        ),
        (
            Outer,
            b'{"docId": "%b", "inner": [{"numbers": {}, "by_number": {"x": "y"}}]}',
            [("#/inner/0/by_number", "expected int, got str")],
        ),
        (Outer, b"[]", [("#", "expected object, got array")]),
        (
            Model,
            b'{"docId": "x", "sizes": [1, "y"]}',
            [("#/docId", "Input should be a valid UUID"), ("#/sizes/1", "Input should be a valid")],
        ),
    ],
)
def test_what_is_wrong_is_pointed_at(
    annotation: Any, body: bytes, problems: list[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidPayload) as raised:
        codec_for(annotation).decode(body.replace(b"%b", ID.encode()))
    found = raised.value.problems
    assert [problem.pointer for problem in found] == [pointer for pointer, _ in problems]
    for problem, (_, detail) in zip(found, problems, strict=True):
        assert problem.detail.startswith(detail)


def test_a_message_without_a_place_points_to_the_whole() -> None:
    assert problem_from("JSON is malformed") == ("#", "jSON is malformed")


@pytest.mark.parametrize(
    ("annotation", "name", "texts", "read"),
    [
        (Outer, "doc_id", [ID], ("docId", ID)),
        (Outer, "docId", [ID], ("docId", ID)),
        (Outer, "is_big", ["true"], ("isBig", True)),
        (Outer, "nothing", ["a"], None),
        (Model, "doc_id", [ID], ("docId", ID)),
        (Model, "sizes", ["1"], ("sizes", ["1"])),
        (Model, "nothing", ["1"], None),
        (Plain, "size", ["3"], ("size", 3)),
        (dict[str, Any], "any", ["1"], ("any", "1")),
        (dict[str, Any], "any", ["1", "2"], ("any", ["1", "2"])),
        (str, "any", ["1"], None),
        (None, "any", ["1"], None),
    ],
)
def test_text_becomes_a_field(annotation: Any, name: str, texts: list[str], read: Any) -> None:
    assert codec_for(annotation).from_text(name, texts) == read


def test_text_that_cannot_be_the_field_is_refused() -> None:
    with pytest.raises(InvalidPayload) as raised:
        codec_for(Outer).from_text("is_big", ["maybe"])
    assert raised.value.problems[0].pointer == "#/isBig"
    with pytest.raises(InvalidPayload):
        codec_for(Plain).from_text("size", ["1", "2"])


def test_a_number_that_is_no_instant_is_refused() -> None:
    """msgspec raises a bare ValueError for the first second of the year 10000."""
    with pytest.raises(InvalidPayload) as raised:
        codec_for(Dated).from_text("at", ["253402300800"])
    assert raised.value.problems[0].pointer == "#/at"


@pytest.mark.parametrize("model", [Model(docId=UUID(ID), sizes=[1]), Written(shown="a")])
def test_a_model_with_aliases_writes_what_it_reads(model: pydantic.BaseModel) -> None:
    codec = codec_for(type(model))
    assert codec.decode(codec.encode(model).body) == model
