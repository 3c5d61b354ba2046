"""Options in a store URL: each is checked, and what is wrong is said with what would be right."""

from collections.abc import Mapping
from typing import Final

from gantline.contract.errors import StoreMisconfigured

_TRUTHS: Final = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


def truth(options: Mapping[str, str], name: str) -> bool:
    """True where it is not said."""
    text = options.get(name, "true").lower()
    if text not in _TRUTHS:
        raise StoreMisconfigured(
            f"{name}={text} in the store URL is neither true nor false.",
            next_step=f"Write {name}=true or {name}=false.",
        )
    return _TRUTHS[text]


def number(options: Mapping[str, str], name: str, default: float, *, least: float) -> float:
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
