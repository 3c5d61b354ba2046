"""`make run`: the demo in a process of its own, in the terminal and in a browser."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from playwright.async_api import async_playwright

from tests.api.streams.followers import chromium
from tests.servers.postgres import free_port

pytestmark = pytest.mark.timeout(120)

REPOSITORY: Final = Path(__file__).parents[2]
PATIENCE_SECONDS: Final = 60
PATIENCE_MILLISECONDS: Final = 1000 * PATIENCE_SECONDS


class Demo(NamedTuple):
    process: asyncio.subprocess.Process
    url: str
    said: list[str]

    async def until(self, wanted: str) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while wanted not in "".join(self.said):
                line = await self.process.stdout.readline()
                assert line, "".join(self.said)
                self.said.append(line.decode())


@asynccontextmanager
async def demo(folder: Path, *options: str, pace: str = "0") -> AsyncIterator[Demo]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.battery_passport", "--pace", pace),
        *("--port", str(port), *options),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}", "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Demo(process, f"http://127.0.0.1:{port}", [])
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_without_a_browser_it_shows_a_sample_going_through_and_where_to_look(
    tmp_path: Path,
) -> None:
    async with demo(tmp_path) as running:
        await running.until("More samples, live:")
        told = "".join(running.said)
        assert f"Open {running.url}" in told
        assert re.findall(r"✓ (\w+)", told)[-4:] == [
            *("COMPILE_PASSPORT", "SIGN_PASSPORT", "GENERATE_QR", "EXPORT_PASSPORT")
        ]
        assert re.search(rf"{running.url}/passports/[0-9a-f-]{{36}}/qr\.png", told)
        running.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await running.process.wait() == 0


async def test_settings_that_are_exported_for_another_application_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("GANTLINE_STORE", "GANTLINE_OUTBOX", "GANTLINE_BRIDGE"):
        monkeypatch.setenv(variable, "unknown://127.0.0.1")
    async with demo(tmp_path, "--once") as running:
        await running.until("More samples, live:")


@asynccontextmanager
async def browsing(url: str) -> AsyncIterator[Any]:
    program = chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page: Any = await browser.new_page()
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console",
            lambda said: troubles.append(said.text) if said.type == "error" else None,
        )
        await page.goto(url)
        yield page
        await browser.close()
        assert troubles == []


@asynccontextmanager
async def page_of_a_demo(folder: Path) -> AsyncIterator[Any]:
    """When the first passport has been made."""
    async with demo(folder) as running:
        await running.until("More samples, live:")
        async with browsing(running.url) as page:
            yield page


async def test_on_the_page_a_sample_becomes_a_code_that_is_scanned_and_verified(
    tmp_path: Path,
) -> None:
    async with page_of_a_demo(tmp_path) as page:
        await page.wait_for_selector("#qr:not([hidden])")
        assert "NC-EV82-000142" in await page.inner_text("#fields")
        await page.click("[data-sample=voltwerk-lmt]")
        await page.wait_for_selector(".step.done:nth-child(7)")  # the webhook has come
        assert await page.locator(".step.done").count() == 7
        assert "VW-CARGO-7781" in await page.inner_text("#fields")
        await page.click("#scan")
        await page.wait_for_selector("#checks li:nth-child(6)")
        checks = await page.inner_text("#checks")
        assert re.search(r"BPC1\|pv=[0-9a-f-]{36}\|ph=\w{52}\|pr=\w{52}\|rh=\w{52}", checks)
        assert await page.locator("#checks .wrong").count() == 0
        await page.set_input_files(
            "#file",
            {
                "name": "mine.csv",
                "mimeType": "text/csv",
                "buffer": b"battery,material,mass_kg,recycled_percent\nMY-1,steel,1,1\n",
            },
        )
        await page.wait_for_selector(".step.held")
        assert "waits for PCF, DUE_DILIGENCE" in await page.inner_text(".step.held")
        await page.click("[data-sample=oldpack]")
        await page.wait_for_selector(".step.failed")
        assert "RULES_NOT_MET" in await page.inner_text(".step.failed")
        await page.click("text=Borealis Bikes")
        await page.wait_for_selector("nav button[aria-pressed=true]:has-text('Borealis')")
        assert await page.locator("#issued li").count() == 0


@pytest.mark.wide
async def test_a_click_while_the_page_still_reads_what_was_made_before_is_not_lost(
    tmp_path: Path,
) -> None:
    async with page_of_a_demo(tmp_path) as page:
        clicked, listed = asyncio.Event(), asyncio.Event()

        async def list_after_the_click(route: Any) -> None:
            await clicked.wait()
            await route.fulfill(response=await route.fetch())
            listed.set()

        async def send_after_the_list(route: Any) -> None:
            clicked.set()
            await listed.wait()
            await route.continue_()

        await page.route("**/api/jobs?limit=200", list_after_the_click)
        await page.route("**/samples/*", send_after_the_list)
        await page.reload()
        await page.click("[data-sample=voltwerk-lmt]")
        await page.wait_for_selector("#fields:has-text('VW-CARGO-7781')")


async def test_a_worker_that_is_killed_by_the_button_has_its_jobs_taken_over(
    tmp_path: Path,
) -> None:
    # Every run waits longer than this test takes, so that the worker dies in the middle of one.
    async with demo(tmp_path, pace="60") as running:
        await running.until("A first sample")
        async with browsing(running.url) as page:
            await page.wait_for_selector(".job.running")
            (killed,) = re.findall(r"Worker (\d+) runs", await page.inner_text("#worker"))
            await page.click("#kill")
            await page.wait_for_selector("#worker:has-text('took over 3 jobs')")
            assert f"Worker {killed} was killed" in await page.inner_text("#worker")
            await page.wait_for_selector(".job.running .chip.crashed + .chip.running")


@pytest.mark.wide
async def test_a_worker_that_is_killed_while_no_job_runs_leaves_nothing_to_take_over(
    tmp_path: Path,
) -> None:
    async with page_of_a_demo(tmp_path) as page:
        await page.wait_for_selector(".step.done:nth-child(7)")
        await page.click("#kill")
        await page.wait_for_selector("#worker:has-text('runs the next jobs')")
        assert "took over" not in await page.inner_text("#worker")


async def test_the_page_shows_the_attempts_of_jobs_and_a_retry(tmp_path: Path) -> None:
    async with page_of_a_demo(tmp_path) as page:
        await page.wait_for_selector(".job:has-text('SIGN_PASSPORT') .chip.retried + .completed")
        signed = await page.inner_text(".job:has-text('SIGN_PASSPORT')")
        assert "attempt 2 of 5" in signed
        chip = page.locator(".job:has-text('SIGN_PASSPORT') .chip.retried")
        assert "key service" in await chip.get_attribute("title")


@pytest.mark.wide
async def test_the_worker_goes_when_the_demo_is_killed(tmp_path: Path) -> None:
    async with demo(tmp_path) as running:
        await running.until("More samples, live:")
        async with httpx2.AsyncClient() as client:
            pid = (await client.get(f"{running.url}/worker")).json()["pid"]
        worker = os.pidfd_open(pid)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(worker, ended.set)
        running.process.kill()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(worker)
        os.close(worker)
