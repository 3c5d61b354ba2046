"""The page of the document example, in Chromium; and the command that serves it."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Page, async_playwright, expect

from examples.document_processing.samples import SAMPLES
from tests.api.streams.followers import chromium
from tests.examples.document_house import House, house
from tests.servers.api import ApiProcess

pytestmark = pytest.mark.xdist_group("examples")
LETTER, CONTRACT, COMPLAINT = (sample.title for sample in SAMPLES)
PATIENCE_MILLISECONDS = 20_000


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("house"), pace_seconds=0.05) as one:
        yield one


@asynccontextmanager
async def browsing(opened: House) -> AsyncIterator[Page]:
    """The page as Ada sees it; what the browser complains of fails the test."""
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(opened.url)
        await expect(page.locator("#documents > li")).not_to_have_count(0)
        yield page
        await browser.close()
    assert complaints == []


async def become(page: Page, name: str) -> None:
    await page.locator("#people button", has_text=name).click()


async def test_the_page_shows_a_job_to_its_end_by_its_events_or_by_asking(opened: House) -> None:
    async with browsing(opened) as page:
        card = page.locator("li", has_text=LETTER)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        await card.get_by_text("Sum it up").click()
        await expect(card.locator(".state")).to_have_text("Completed")
        await expect(card.locator(".phase")).to_have_text("ai-analyze")
        await expect(card.locator(".summary")).to_contain_text("treatment")
        asked = [url for url in requests if url.endswith("/status")]
        assert len(asked) == 1, "the stream tells the rest"
        await page.click("#asking")
        await card.get_by_text("Count it").click()
        await expect(card.locator(".facts")).to_contain_text("98 words in 9 sentences")
        await card.locator("details summary").click()
        await expect(card.locator("mark")).to_have_count(5)
        await expect(card).not_to_contain_text("Quimby")


async def test_a_new_document_appears_and_is_processed_while_one_watches(opened: House) -> None:
    async with browsing(opened) as page:
        await page.fill("[name=title]", "<b>Reminder</b>")
        await page.fill("[name=text]", "Write to mia@example.net.\n\nThe report is late.")
        await page.click("#new button")
        card = page.locator("li", has_text="<b>Reminder</b>")
        await expect(card.locator(".facts")).to_contain_text("1 personal details hidden")
        await expect(card.locator(".keywords")).to_contain_text("report")


async def test_a_colleague_sees_what_happens_to_a_shared_document(opened: House) -> None:
    """He has not asked for the job, and is told of it by his own stream."""
    async with browsing(opened) as page:
        await become(page, "Ben")
        await expect(page.locator("#documents > li")).to_have_count(1)
        await expect(page.locator("#documents")).to_contain_text("shared with you")
        ada = opened.person("ada")
        ada.enqueue(ada.documents()[CONTRACT]["documentId"], "statistics")
        await expect(page.locator(".facts")).to_contain_text("sentences")


async def test_the_page_says_that_a_type_is_switched_off(opened: House) -> None:
    async with browsing(opened) as page:
        await become(page, "Olga")
        await expect(page.locator("#work")).to_be_hidden()
        switch = page.locator("#types li", has_text="ai-analyze").locator("button")
        await switch.click()
        await expect(page.locator("#banner")).to_contain_text("Switched off by an operator")
        await become(page, "Cleo")
        await expect(page.locator("#banner")).to_contain_text("ai-analyze")
        await expect(page.get_by_text("Sum it up")).to_be_disabled()
        assert opened.person("olga").post("/api/job-types/ai-analyze/enable").is_success
        await expect(page.get_by_text("Sum it up")).to_be_enabled()
        await expect(page.locator("#banner")).to_be_hidden()


def test_one_command_serves_it(tmp_path: Path) -> None:
    words = ("examples.document_processing", "--port", "{port}", "--database", "{target}")
    process = ApiProcess(str(tmp_path / "new" / "documents.db"), by=words)
    process.start()
    try:
        response = httpx2.get(process.url)
        assert "<title>Documents</title>" in response.text
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert process.stop(signal.SIGINT) == 0, process.log
    finally:
        process.close()
