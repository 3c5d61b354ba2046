"""JSON pointers (RFC 6901) to what msgspec and pydantic find wrong, for clients to show."""

import re
from collections.abc import Iterable
from typing import Final

from gantline.contract.errors import Problem

UNKNOWN: Final = "is not known here"
MISSING: Final = "is missing"
_WITH_PATH: Final = re.compile(r"^(?P<detail>.*) - at `(?:key in )?(?P<path>\$.*)`$", re.DOTALL)
_KEY_PATH: Final = re.compile(r"^(?P<detail>.*) - at `key` in `(?P<path>\$.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_FIELD: Final = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>.*)`$")


def problem_from(message: str) -> Problem:
    """Read where and what from a message of msgspec."""
    match = _KEY_PATH.match(message) or _WITH_PATH.match(message)
    detail, path = (match["detail"], match["path"]) if match else (message, "$")
    steps = _steps(path)
    if field := _FIELD.match(detail):
        missing = detail.startswith("Object missing")
        return Problem(pointer_to([*steps, field["name"]]), MISSING if missing else UNKNOWN)
    return Problem(pointer_to(steps), _plain(detail))


def pointer_to(steps: Iterable[str | int]) -> str:
    """Write a pointer as a URI fragment, the way RFC 9457 shows them."""
    return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _steps(path: str) -> list[str]:
    """What lies below a key that msgspec does not name ([...]) cannot be pointed to."""
    steps = []
    for match in _STEP.finditer(path):
        step = match[1] or match[2]
        if step is None:
            break
        steps.append(step)
    return steps


def _plain(detail: str) -> str:
    return detail[:1].lower() + detail[1:].replace("`", "")
