"""Reading a store URL: each option is checked, and an error says what would be right."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from urllib.parse import SplitResult

from gantline.contract.errors import StoreMisconfigured

_TRUTHS: Final = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(
    ("false", "no", "off", "0"), False
)


_OPTION_NAME: Final = re.compile(r"[a-z_]+")


def unreadable(example: str) -> StoreMisconfigured:
    """Say how a URL is written. To say what is wrong with this one would repeat the password."""
    return StoreMisconfigured(
        "The store URL cannot be read.",
        next_step=f"Write it as {example}, and percent-encode what is special in the password.",
    )


def is_unambiguous(parts: SplitResult) -> bool:
    """Whether all readers of the URL see the same end of its password."""
    return parts.netloc.count("@") < 2 and "@" not in parts.path and not parts.fragment


def check_names(
    names: Iterable[str], known: Collection[str], *, example: str, next_step: str
) -> None:
    """Refuse options that nobody knows."""
    for name in names:
        if name in known:
            continue
        if not _OPTION_NAME.fullmatch(name):
            raise unreadable(example)  # it may well be the end of a password
        raise StoreMisconfigured(f"{name} is no option of a store URL.", next_step=next_step)


def read_bool(options: Mapping[str, str], name: str) -> bool:
    """Read a switch; true by default."""
    text = options.get(name, "true").lower()
    if text not in _TRUTHS:
        raise StoreMisconfigured(
            f"{name}={text} in the store URL is neither true nor false.",
            next_step=f"Write {name}=true or {name}=false.",
        )
    return _TRUTHS[text]


def read_number(options: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    text = options.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < 100_000:
        raise StoreMisconfigured(
            f"{name}={text} in the store URL is not a number from {least:g} on.",
            next_step=f"Write {name}={default:g}, or leave it out.",
        )
    return value
