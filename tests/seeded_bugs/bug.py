"""A bug: what is wrong, how it is put in, and by what it must be caught."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

Part = Literal[
    "manager",
    "worker",
    "schedules",
    "webhooks",
    "memory store",
    "sqlite store",
    "postgres store",
    "redis store",
]
StoreKind = Literal["memory", "sqlite", "postgres", "redis"]

Breakage = Callable[[], AbstractContextManager[None]]
"""Puts something wrong in for the time of a block; fails where it no longer fits the code."""


@dataclass(frozen=True)
class Simulation:
    """Seeds from 1 on, on one store, until one run breaks a rule."""

    store: Literal["memory", "sqlite"] = "memory"


@dataclass(frozen=True)
class Suite:
    """The rules of the conformance suite, in their order, until one fails; named topics first."""

    store: StoreKind
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bug:
    """`what` says in one line what is wrong."""

    name: str
    part: Part
    what: str
    breakages: tuple[Breakage, ...]
    caught_by: Simulation | Suite

    @contextmanager
    def put_in(self) -> Iterator[None]:
        with ExitStack() as stack:
            for breakage in self.breakages:
                stack.enter_context(breakage())
            yield
