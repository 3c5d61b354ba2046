"""The `bash` blocks of the pages: each is run here, by another test, or listed with the reason."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.test_documentation import ID, README, REPOSITORY, Shell, blocks, modules

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]

NOT_RUN_HERE: Final = {
    "CONTRIBUTING.md: python -m benchmarks guard BASE": "measures for five minutes",
    "docs/coming-from/bpc-worker.md: gantline webhook add": "looks a name up; "
    "tests/test_seeds_page.py reads it",
    "docs/guides/backup.md: pg_dump": "tests/test_backup_page.py runs it",
    "docs/guides/backup.md: psql": "tests/test_backup_page.py runs it",
    "docs/guides/backup.md: redis-cli BGSAVE": "is for a server that the page does not start",
    "docs/guides/fastapi.md: pip install": "installs from an index",
    "docs/guides/writing-a-store.md: pip install": "tests/test_pages.py runs its second line",
}
BLOCKS: Final = [
    (file.relative_to(REPOSITORY).as_posix(), block)
    for file in sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
    for block in blocks(file.read_text(encoding="utf-8"), "bash")
]


def reason_not_to_run(place: str, block: str) -> str:
    begun = f"{place}: {block}"
    return next((why for start, why in NOT_RUN_HERE.items() if begun.startswith(start)), "")


def test_every_block_that_is_not_run_is_there() -> None:
    begun = [f"{place}: {block}" for place, block in BLOCKS]
    for start in NOT_RUN_HERE:
        assert any(one.startswith(start) for one in begun), start


@pytest.mark.parametrize(
    ("place", "block"),
    [one for one in BLOCKS if not reason_not_to_run(*one)],
    ids=lambda text: re.sub(r"\s.*", "", text, flags=re.DOTALL),
)
def test_a_block_of_a_page_runs(place: str, block: str, tmp_path: Path) -> None:
    """In a folder with the README's application, a worker's store and a dead letter."""
    shell = Shell(tmp_path)
    shell.write(modules(README))
    shell.environment["GANTLINE_APP"] = "shop:jobs"
    shell.run("""gantline job submit document-indexing '{"document_id": ""}'""")
    shell.work("gantline worker", runs=1)
    (job_id,) = ID.findall(shell.run("gantline -o json dead list"))[:1]
    script = block.replace("JOB_ID", job_id).replace(
        "gantline doctor\n", "gantline doctor || true\n"
    )
    done = subprocess.run(
        ["/bin/bash", "-euc", script],
        cwd=tmp_path,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
