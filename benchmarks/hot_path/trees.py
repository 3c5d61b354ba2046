"""Source trees that are measured side by side: this one, and that of another revision."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.contest.children import ROOT, Child, ChildFailed, started


class Tree(NamedTuple):
    """A tree by its name and its folder `src`."""

    name: str
    source: Path

    @contextmanager
    def started(self, module: str, *arguments: str) -> Iterator[Child]:
        """A program of this repository that runs with the tree's Gantline, and says so first."""
        program = [sys.executable, "-m", module, *arguments]
        try:
            with started(["env", f"PYTHONPATH={self.source}", *program]) as child:
                measured = Path(answer_to(child)["gantline"])
                if not measured.is_relative_to(self.source):
                    raise ChildFailed(f"{measured} is measured in place of {self.source}")
                yield child
        except ChildFailed as failure:
            raise ChildFailed(f"{self.name}: {failure}") from None


def answer_to(child: Child, question: str = "") -> Any:
    """Give a child a line, if there is one to give, and read the line that it answers."""
    assert child.process.stdin is not None
    assert child.process.stdout is not None
    if question:
        child.process.stdin.write(f"{question}\n")
        child.process.stdin.flush()
    line = child.process.stdout.readline()
    if not line:
        child.process.wait()
        raise child.failure(f"it ended with {child.process.returncode}")
    return json.loads(line)


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
