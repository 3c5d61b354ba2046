"""Counts how often a payload crosses JSON, by a mark that it carries."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import msgspec


class Crossing(NamedTuple):
    """What was called, and by which function."""

    call: str
    function: str
    file: str


class JsonWatch:
    """Wraps the functions and classes of `msgspec.json` and `json`.

    To be installed before the package is imported that it watches. What a database does in SQL or
    a driver does by itself is not seen. An encoder that passes on what was encoded before
    (`msgspec.Raw`) counts as well: it copies it.
    """

    def __init__(self, folder: Path, mark: str) -> None:
        self._folder = f"{folder}/"
        self._mark = mark.encode()
        self._is_on = False
        self._crossings: list[Crossing] = []

    def install(self) -> None:
        self._wrap(msgspec.json, "encode", "decode")
        self._wrap(json, "dumps", "loads")
        for kind, verb in (("Encoder", "encode"), ("Decoder", "decode")):
            setattr(msgspec.json, kind, self._class_of(getattr(msgspec.json, kind), verb))

    def start(self) -> None:
        self._crossings = []
        self._is_on = True

    def stop(self) -> list[Crossing]:
        self._is_on = False
        return self._crossings

    def _wrap(self, module: ModuleType, *names: str) -> None:
        for name in names:
            function = getattr(module, name)
            setattr(module, name, self._noting(function, f"{module.__name__}.{name}"))

    def _class_of(self, real: Any, verb: str) -> type:
        """A class of C cannot be inherited from: have one that makes it and calls it."""
        noting = self._noting

        class Watched:
            def __init__(self, *words: Any, **options: Any) -> None:
                self._real = real(*words, **options)
                name = f"msgspec.json.{real.__name__}.{verb}"
                setattr(self, verb, noting(getattr(self._real, verb), name))

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

            def __class_getitem__(cls, item: Any) -> Any:
                return real[item]

        return Watched

    def _noting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def noting(*words: Any, **options: Any) -> Any:
            result = function(*words, **options)
            if self._is_on and any(self._mark in _bytes_of(text) for text in (result, *words[:1])):
                self._crossings.append(Crossing(name, *self._caller(sys._getframe(1))))
            return result

        return noting

    def _caller(self, frame: FrameType) -> tuple[str, str]:
        code = frame.f_code
        return code.co_qualname, code.co_filename.removeprefix(self._folder)


def _bytes_of(value: object) -> bytes:
    """What JSON was written as or read from; nothing of a value that is no text."""
    if isinstance(value, str):
        return value.encode(errors="replace")
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview, msgspec.Raw)) else b""
