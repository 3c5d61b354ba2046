"""What users import: the names they need are public, and no page or example reaches behind them."""

import re
from pathlib import Path

import pytest

import gantline
from gantline import Gantline, InvalidInput, JobNotCompleted, SubmitRefused, errors
from gantline.contract import errors as contract_errors

REPOSITORY = Path(__file__).parents[1]
# Who writes a store implements the contract.
FOR_DEVELOPERS = ("architecture.md", "writing-a-store.md")
PAGES = [
    REPOSITORY / "README.md",
    *(
        page
        for page in sorted((REPOSITORY / "docs").rglob("*.md"))
        if page.parent.name != "adr" and page.name not in FOR_DEVELOPERS
    ),
]
EXAMPLES = sorted((REPOSITORY / "examples").rglob("*.py"))
INNER = re.compile(
    r"^\s*(?:from|import) gantline\.(?:contract|manager|worker|stores|app)\b.*", re.M
)


def test_what_is_refused_or_has_not_completed_has_a_common_error() -> None:
    assert issubclass(gantline.QueueFull, SubmitRefused)
    assert issubclass(gantline.JobTypeDisabled, SubmitRefused)
    assert issubclass(gantline.StoreClosed, SubmitRefused)
    for ended in (gantline.JobFailed, gantline.JobPoisoned, gantline.JobCancelled):
        assert issubclass(ended, JobNotCompleted)


def test_every_error_is_public() -> None:
    defined = {
        name
        for name, value in vars(contract_errors).items()
        if isinstance(value, type) and issubclass(value, gantline.GantlineError)
    }
    assert defined <= set(errors.__all__)


@pytest.mark.parametrize("file", [*PAGES, *EXAMPLES], ids=lambda file: file.stem)
def test_no_page_and_no_example_imports_what_is_not_public(file: Path) -> None:
    assert not INNER.findall(file.read_text(encoding="utf-8"))


async def test_no_attempt_at_all_is_an_error_and_not_the_default() -> None:
    jobs = Gantline("memory://")

    @jobs.job("once")
    async def once(value: int) -> None: ...

    async with jobs:
        with pytest.raises(InvalidInput, match="maxAttempts"):
            await once.submit(1, max_attempts=0)
