"""Handlers that each return one value, at the top level of a module: a process can run them."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic

from gantline import Permanent, Retry, Snooze
from gantline.contract.outcome import ErrorInfo, Failure, Success

WHEN = datetime(2026, 11, 16, 13, 0, tzinfo=UTC)
NOBODY = UUID(int=7)


class Colour(enum.Enum):
    RED = "red"


class Price(pydantic.BaseModel):
    amount: Decimal
    currency: str = "EUR"


class Offer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    price: Price
    until: datetime = pydantic.Field(alias="validUntil")
    seller: UUID = pydantic.Field(default=NOBODY, serialization_alias="sellerId")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"


class Tags(pydantic.RootModel[list[str]]):
    pass


@pydantic.dataclasses.dataclass
class Checked:
    count: int


class Parcel(msgspec.Struct, rename="camel"):
    sent_at: datetime
    weight: Decimal
    price: Price | None = None


class Address(TypedDict):
    street: str
    since: date


class Pair(NamedTuple):
    left: int
    right: Price


@dataclass
class Order:
    price: Price
    offers: list[Offer]


class Measured(pydantic.BaseModel):
    level: float | None


@dataclass
class Sample:
    value: Any


class Unknown:
    pass


class Case(NamedTuple):
    annotation: Any
    value: Any
    comes_back_as: Any = ...
    """Where it is not the value itself."""


class Bad(NamedTuple):
    annotation: Any
    value: Any
    message: str


UNDECLARED = object()
PRICE = Price(amount=Decimal("9.90"))
OFFER = Offer(price=PRICE, validUntil=WHEN)
PRICE_AS_JSON = {"amount": "9.90", "currency": "EUR"}

KEPT = {
    "nothing": Case(None, None),
    "number": Case(int, 3),
    "model": Case(Price, PRICE),
    "model_with_aliases": Case(Offer, OFFER),
    "models": Case(list[Offer], [OFFER]),
    "models_by_name": Case(dict[str, Price], {"a": PRICE}),
    "model_or_none": Case(Price | None, PRICE),
    "none_of_a_model": Case(Price | None, None),
    "one_of_two_models": Case(Cat | Dog, Dog()),
    "tagged_models": Case(
        list[Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]], [Dog(), Cat()]
    ),
    "root_model": Case(Tags, Tags(["a"])),
    "pydantic_dataclass": Case(Checked, Checked(1)),
    "pydantic_dataclasses": Case(list[Checked], [Checked(1)]),
    "dataclass_of_models": Case(Order, Order(PRICE, [OFFER])),
    "struct": Case(Parcel, Parcel(WHEN, Decimal("1.5"), PRICE)),
    "structs": Case(tuple[Parcel, ...], (Parcel(WHEN, Decimal("1.5")),)),
    "typed_dict": Case(Address, {"street": "Elm", "since": WHEN.date()}),
    "named_tuple": Case(Pair, Pair(1, PRICE)),
    "datetime": Case(datetime, WHEN),
    "duration": Case(timedelta, timedelta(minutes=1)),
    "decimals": Case(dict[str, Decimal], {"a": Decimal("0.10")}),
    "uuids": Case(set[UUID], {NOBODY}),
    "enum": Case(Colour, Colour.RED),
    "numbered": Case(dict[int, Colour], {1: Colour.RED}),
    "undeclared_model": Case(UNDECLARED, PRICE, PRICE_AS_JSON),
    "undeclared_nest": Case(UNDECLARED, [Sample([PRICE])], [{"value": [PRICE_AS_JSON]}]),
    "undeclared_decimal": Case(UNDECLARED, Decimal("0.10"), "0.10"),
    "something_for_none": Case(None, {"price": PRICE}, {"price": PRICE_AS_JSON}),
    "any_model": Case(Any, {"price": PRICE}, {"price": PRICE_AS_JSON}),
}


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


NOT_STORABLE = {
    "no_json": Bad(Any, {"a": [Unknown()]}, "#/a/0 is not JSON data: a Unknown"),
    "no_json_declared": Bad(Unknown, Unknown(), "# is not JSON data: a Unknown"),
    "bytes": Bad(UNDECLARED, Sample(b"x"), "#/value contains bytes"),
    "not_a_number": Bad(dict[str, list[float]], {"a/b": [1.0, float("nan")]},
                        "#/a~1b/1 contains nan, which JSON cannot say"),
    "infinite_in_a_model": Bad(list[Measured], [Measured(level=float("inf"))],
                               "#/0/level contains inf, which JSON cannot say"),
    "too_deep": Bad(Any, nested(100), "# is nested deeper than 64 levels"),
    "surrogate": Bad(Any, {"a": "\ud800"}, "# contains a lone surrogate, which is not text"),
    "too_large": Bad(str, "x" * 20_000, "The result has 20002 bytes; the limit is 16384"),
    "text_for_a_number": Bad(dict[str, int], {"a": "x"}, "expected int, got str"),
    "none_for_a_model": Bad(Price, None, "# must be a Price, not a NoneType"),
    "none_for_a_number": Bad(int, None, "# expected int, got null"),
    "other_model": Bad(Price, Cat(), "# must be a Price, not a Cat"),
    "other_model_in_a_list": Bad(list[Price], [PRICE, Cat()], "#/1/amount Field required"),
    "changed_model": Bad(Order, Order(Price.model_construct(amount="x"), []), "#/price"),
    "field_of_a_struct": Bad(Parcel, Parcel("soon", Decimal(1)), "#/sentAt"),  # type: ignore[arg-type]  # on purpose
}  # fmt: skip


def _returning(name: str, annotation: Any, value: Any) -> Callable[[], Any]:
    def function() -> Any:
        return value

    function.__name__ = function.__qualname__ = name
    function.__annotations__ = {} if annotation is UNDECLARED else {"return": annotation}
    return function


FUNCTIONS = {
    name: _returning(name, annotation, value)
    for name, (annotation, value, _) in [*KEPT.items(), *NOT_STORABLE.items()]
}
globals().update(FUNCTIONS)


def permanent() -> Any:
    return Permanent("CARD_DECLINED", "The card was declined.")


def retry() -> None:
    return Retry("Try again.")  # type: ignore[return-value]  # what is refused


def snooze() -> Any:
    return Snooze(60)


def value_error() -> None:
    return ValueError("It was wrong.")  # type: ignore[return-value]  # what is refused


def error_class() -> Any:
    return KeyError


def failure() -> Any:
    return Failure(ErrorInfo("BROKEN", "It is broken."))


def success() -> None:
    return Success()  # type: ignore[return-value]  # what is refused


SIGNALS: dict[str, Callable[[], Any]] = {
    "Permanent": permanent,
    "Retry": retry,
    "Snooze": snooze,
    "ValueError": value_error,
    "KeyError": error_class,
    "Failure": failure,
    "Success": success,
}
