"""Texts of users on the page of the battery passport, in Chromium: shown as texts, nothing else.

Each is hostile once: names of files, errors that repeat what was sent, fields of a passport, what a
scanned code says, ids in URLs and in jobs that were submitted by hand.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from playwright.async_api import FilePayload, Page, Route, ViewportSize, async_playwright, expect

from tests.api.streams.followers import chromium
from tests.examples.passports import documents
from tests.examples.test_passport_demo import PATIENCE_MILLISECONDS, demo

pytestmark = [pytest.mark.wide, pytest.mark.timeout(120)]
expect.set_options(timeout=PATIENCE_MILLISECONDS)

IMAGE: Final = '<img src=x onerror="window.ran=1">'
SCRIPT: Final = "</b><script>window.ran=1</script>"
DRAWING: Final = '"><svg onload=window.ran=1>'
TURNED: Final = "\u202egnp.\u2066lmth\u200f"
WIDE: Final = "W" * 79
TEXTS: Final = (IMAGE, SCRIPT, DRAWING, TURNED, WIDE, "${window.ran=1}{{window.ran=1}}")
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}
WATCH: Final = """
  window.ran = 0;
  window.violations = [];
  document.addEventListener("securitypolicyviolation",
    (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
LOOK: Final = """() => ({
  ran: window.ran,
  violations: window.violations,
  scripts: document.querySelectorAll("script").length,
  images: document.querySelectorAll("img").length,
  others: document.querySelectorAll("svg, iframe, object, embed, form, base, style").length,
  handlers: [...document.querySelectorAll("*")].flatMap((one) => one.getAttributeNames())
    .filter((name) => name.startsWith("on")).length,
  isWide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
})"""
FOLLOWS: Final = """() => {
  const texts = [...document.querySelector(".step.failed p").firstChild.getClientRects()];
  const button = document.querySelector("#steps button").getBoundingClientRect();
  const beside = texts.filter((one) => one.bottom > button.top + 1 && one.top < button.bottom - 1);
  return beside.every((one) => one.right <= button.left + 1);
}"""
UNHARMED: Final = {
    "ran": 0,
    "violations": [],
    "scripts": 1,
    "images": 3,
    "others": 0,
    "handlers": 0,
    "isWide": False,
}


class Visit:
    """The page on a telephone; what the browser complains of is kept."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        page.on("console", lambda said: self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    async def is_unharmed(self) -> None:
        assert await self.page.evaluate(LOOK) == UNHARMED
        assert self.complaints == []

    async def send(self, name: str, content: bytes) -> None:
        file: FilePayload = {"name": name, "mimeType": "text/csv", "buffer": content}
        await self.page.set_input_files("#file", [file])
        await expect(self.page.locator("#run b")).to_have_text(name, use_inner_text=False)


@asynccontextmanager
async def visiting(folder: Path) -> AsyncIterator[Visit]:
    async with demo(folder) as running, async_playwright() as playwright:
        await running.until("More samples, live:")
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = await browser.new_page(viewport=NARROW)
        await page.add_init_script(WATCH)
        visit = Visit(page, running.url)
        await page.goto(running.url)
        await page.wait_for_selector("#qr:not([hidden])")
        yield visit
        await browser.close()


def sample(kind: str, serial: str) -> str:
    (file,) = [one for one in documents("nordcell-ev") if kind in one.name]
    return file.read_text(encoding="utf-8").replace("NC-EV82-000142", serial)


def passport_of(serial: str, text: str) -> list[bytes]:
    """Three documents of a battery, with a text wherever one can be."""
    footprint = json.loads(sample("pcf", serial))
    footprint["battery"] |= {"model": text, "manufacturer": text, "chemistry": text}
    footprint["stages"][text] = 0.5
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    report = sample("due", serial).replace("Kokkola Refining", escaped)
    quoted = text.replace('"', '""')
    parts = sample("bom", serial) + f'{serial},"{quoted}",1,0\n'
    return [json.dumps(footprint).encode(), report.encode(), parts.encode()]


async def test_names_of_files_and_errors_are_texts(tmp_path: Path) -> None:
    async with visiting(tmp_path) as visit:
        for number, text in enumerate(TEXTS):
            name = f"{text.replace('/', '-')}{number}.json"
            await visit.send(name, json.dumps({text: 1, "number": number}).encode())
            failed = visit.page.locator(".step.failed p")
            await expect(failed).to_contain_text(text)
            assert await visit.page.evaluate(FOLLOWS), "a text turns nothing but itself"
            await visit.is_unharmed()


async def test_a_name_that_is_not_accepted_is_a_text(tmp_path: Path) -> None:
    async with visiting(tmp_path) as visit:
        name = f"{WIDE}{IMAGE}{WIDE}".replace("/", "-")
        await visit.send(name, b"")
        await expect(visit.page.locator("#notice")).to_contain_text(quote(IMAGE, safe="~()*!.'"))
        (said,) = visit.complaints
        assert "400 (Bad Request)" in said, "of the browser itself"
        visit.complaints.clear()
        await visit.is_unharmed()


async def test_the_fields_of_a_passport_are_texts(tmp_path: Path) -> None:
    async with visiting(tmp_path) as visit:
        for number, text in enumerate(TEXTS):
            serial = f"HOSTILE-{number}-{'9' * 25}"
            for missing, content in zip((2, 1, 0), passport_of(serial, text), strict=True):
                await visit.send(f"{number}-{missing}.csv", content)
                state = "held" if missing else "done"
                await visit.page.wait_for_selector(f".step.{state}:nth-child(2)")
            fields = visit.page.locator("#fields dd")
            await expect(fields.nth(0)).to_have_text(serial)
            await expect(fields.nth(1)).to_have_text(text, use_inner_text=False)
            await expect(fields.nth(2)).to_have_text(text, use_inner_text=False)
            await expect(visit.page.locator("#issued")).to_contain_text(serial)
            await visit.is_unharmed()
        await visit.page.reload()
        await expect(visit.page.locator("#issued")).to_contain_text("HOSTILE-0")
        await visit.is_unharmed()


async def say(text: str, route: Route) -> None:
    await route.fulfill(json={"text": text})


async def test_what_a_code_says_is_a_text(tmp_path: Path) -> None:
    async with visiting(tmp_path) as visit:
        for text in (*TEXTS, f"BPC1|pv={IMAGE}|ph={WIDE}|pr={WIDE}|rh={WIDE}"):
            await visit.page.route("**/scan?*", partial(say, text))
            await visit.page.click("#scan")
            read = visit.page.locator("#checks code")
            await expect(read).to_have_text(text, use_inner_text=False)
            await expect(visit.page.locator("#checks .wrong")).not_to_have_count(0)
            await visit.is_unharmed()
            await visit.page.unroute("**/scan?*")


async def test_jobs_that_were_submitted_by_hand_are_texts(tmp_path: Path) -> None:
    async with visiting(tmp_path) as visit:
        listed = await visit.page.request.get(f"{visit.url}/api/jobs")
        correlation = (await listed.json())["items"][0]["correlationId"]
        for text in TEXTS:
            sent = await visit.page.request.post(
                f"{visit.url}/api/jobs",
                data={
                    "jobType": "SIGN_PASSPORT",
                    "payload": {"passport_version_id": text},
                    "subjectId": text,
                    "correlationId": correlation,
                },
            )
            assert sent.status == 202, await sent.text()
            other = {"jobType": "SIGN_PASSPORT", "payload": {"passport_version_id": f"{text}2"}}
            again = {**other, "correlationId": text}
            assert (await visit.page.request.post(f"{visit.url}/api/jobs", data=again)).ok
            job = (await sent.json())["jobId"]
            await expect(visit.page.locator(f".job.failed code[title='{job}']")).to_have_count(1)
            await visit.is_unharmed()


@pytest.mark.parametrize(
    "path",
    ["/{}", "/passports/{}", "/passports/{}/qr.png", "/api/jobs/{}", "/api/problems/{}", "/api/{}"],
)
async def test_an_id_in_a_url_runs_nothing(tmp_path: Path, path: str) -> None:
    async with visiting(tmp_path) as visit:
        for text in (IMAGE, SCRIPT, DRAWING):
            answer = await visit.page.goto(visit.url + path.format(quote(text, safe="")))
            assert answer is not None
            assert answer.status in (400, 404)
            assert await visit.page.evaluate("window.ran") == 0
            assert await visit.page.locator("img, svg, script").count() == 0
