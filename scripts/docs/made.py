"""Tables in pages that come from the code or from measurements.

`python -m scripts.docs.made` writes them anew, between `<!-- made: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scripts.docs import figures, proofs
from scripts.docs.reference import stores

DOCS: Final = Path(__file__).parents[2] / "docs"
BLOCK: Final = re.compile(r"^<!-- made: ([\w-]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
MADE: Final[Mapping[str, Callable[[], str]]] = {
    "bugs": proofs.bugs,
    "chaos": proofs.chaos,
    "each-bug": proofs.each_bug,
    "figures": figures.beside_others,
    "figures-date": figures.when_and_where,
    "losses": figures.losses,
    "mutants": proofs.mutants,
    "proven": proofs.proven,
    "proven-faults": proofs.proven_faults,
    "simulated": proofs.simulated,
    "simulated-faults": proofs.simulated_faults,
    "stores": stores.promises,
}


def filled(text: str) -> str:
    """A page with its tables as they are now."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- made: {found[1]} -->\n\n{MADE[found[1]]().strip()}\n\n<!-- end -->"

    return BLOCK.sub(made, text)


if __name__ == "__main__":
    for file in DOCS.rglob("*.md"):
        before = file.read_text(encoding="utf-8")
        if (after := filled(before)) != before:
            file.write_text(after, encoding="utf-8")
