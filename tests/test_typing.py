"""Typing is part of the interface: wrong payloads, options and uses of a result are mypy errors."""

import re
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parent / "typing" / "wrong_use.py"


def test_mypy_refuses_exactly_what_is_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(FILE)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    found = {
        (int(line), code)
        for line, code in re.findall(
            r"wrong_use\.py:(\d+): error: .* \[([\w-]+)\]$", done.stdout, re.M
        )
    }
    expected = {
        (number, match[1])
        for number, line in enumerate(FILE.read_text().splitlines(), 1)
        if (match := re.search(r"# expect: ([\w-]+)", line))
    }
    assert found == expected, done.stdout
