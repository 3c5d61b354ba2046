"""Merging metrics pages of several processes into one, as text.

Not through prometheus_client's parser, which takes ten times as long: with many processes and types
a scrape would keep the probes waiting.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gantline.telemetry import names

_OF_THE_STORE: Final = frozenset(metric.name for metric in names.OF_THE_STORE)
_STORE_IS_UP: Final = f"\n{names.STORE_UP.name} 1.0\n"


class _Family:
    """The lines of one family: what they mean, and the samples of all processes."""

    def __init__(self) -> None:
        self.head: dict[str, None] = {}
        self.samples: list[str] = []


def merged(pages: Mapping[str, str]) -> str:
    """The pages as one: every series says which `process` it is of.

    What is the store's is the same in all of them, so one speaks for all: one that could count it.
    """
    speaker = next((name for name, page in pages.items() if _STORE_IS_UP in page), None)
    families: dict[str, _Family] = {}
    for process, page in pages.items():
        family, label, is_of_the_store = _Family(), f'process="{process}"', False
        for line in page.split("\n"):
            if line.startswith("#"):
                name = line.split(" ", 3)[2]
                family = families.setdefault(name, _Family())
                family.head[line] = None
                is_of_the_store = name in _OF_THE_STORE
            elif line and not is_of_the_store:
                family.samples.append(_labelled(line, label))
            elif line and process == (speaker or next(iter(pages))):
                family.samples.append(line)
    return "".join(
        f"{line}\n" for family in families.values() for line in (*family.head, *family.samples)
    )


def up(processes: Iterable[tuple[str, bool]]) -> str:
    """A page that says which processes answer."""
    metric = names.PROCESS_UP
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    lines += [f'{metric.name}{{process="{name}"}} {float(is_up)}' for name, is_up in processes]
    return "\n".join(lines) + "\n"


def _labelled(line: str, label: str) -> str:
    """Put a label in front of the others: the name ends at the first brace or space."""
    name, space, rest = line.partition(" ")
    if "{" not in name:
        return f"{name}{{{label}}}{space}{rest}"
    name, _, rest = line.partition("{")
    return f"{name}{{{label}{'' if rest.startswith('}') else ','}{rest}"
