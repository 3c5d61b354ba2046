"""Handlers of several arguments, at the top level of a module, where processes find them."""

from decimal import Decimal
from typing import Annotated

import msgspec
import pydantic

from gantline import Context


class Address(pydantic.BaseModel):
    city: str
    lines: list[str] = []


class Item(msgspec.Struct):
    name: str
    price: Decimal


def add(a: int, b: int = 2) -> int:
    return a + b


def by_position(a: int, /, b: int, *, c: int = 3) -> list[int]:
    return [a, b, c]


def label(item: Item, to: Address, count: Annotated[int, msgspec.Meta(ge=1)] = 1) -> str:
    return f"{count} {type(item).__name__} {item.price} {type(to).__name__} {to.city}"


def loose(a, b=None):  # type: ignore[no-untyped-def]  # as people have them
    return [a, b]


def optional(a: int, b: int = None) -> list[int | None]:  # type: ignore[assignment]  # noqa: RUF013
    return [a, b]


def only_by_name(*, a: int) -> int:
    return a


async def later(a: int, b: int = 2) -> int:
    return a + b


async def with_context_first(ctx: Context, a: int, b: int = 2) -> int:
    return ctx.attempt + a + b


async def with_context_last(a: int, b: int, ctx: Context) -> int:
    return ctx.attempt + a + b


async def with_context_or_not(a: int, b: int = 2, ctx: Context | None = None) -> int:
    return (ctx.attempt if ctx else 0) + a + b
