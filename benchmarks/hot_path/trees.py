"""Source trees that are measured side by side: this one, and that of another revision."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.contest.children import ROOT, answer_of


class Tree(NamedTuple):
    """A tree by its name and its folder `src`."""

    name: str
    source: Path

    def ask(self, module: str, *arguments: str) -> Any:
        """Run a program of this repository with the tree's Gantline; give its answer."""
        program = [sys.executable, "-m", module, *arguments]
        answer = answer_of(["env", f"PYTHONPATH={self.source}", *program])
        measured = Path(answer.pop("gantline"))
        if not measured.is_relative_to(self.source):
            raise RuntimeError(f"{measured} was measured in place of {self.source}")
        return answer


THIS: Final = Tree("this tree", ROOT / "src")


def revision(text: str) -> str:
    """Check that git knows a revision: an argument of a command."""
    wanted = f"{text}^{{commit}}"
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", wanted]
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
        raise argparse.ArgumentTypeError(f"git knows no revision {text!r} here")
    return text


@contextmanager
def tree_of(name: str, folder: Path) -> Iterator[Tree]:
    """A worktree of a revision, which is removed afterwards."""
    path = folder / "base"
    _git("worktree", "add", "--quiet", "--detach", str(path), name)
    try:
        yield Tree(name, path / "src")
    finally:
        _git("worktree", "remove", "--force", str(path))


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)  # noqa: S607  # whichever is installed
