"""Those who follow a job across restarts of the API: curl, and a browser's own EventSource."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec
import pytest
from playwright.async_api import Page, async_playwright

from tests.api.streams.event_stream import Heard, Parser
from tests.servers.web import WebServer, body

PATIENCE_SECONDS: Final = 90
_PAUSE_SECONDS: Final = 0.2


class Follower(Protocol):
    """Hears events, and comes back by itself until it is told that there are no more."""

    @property
    def heard(self) -> list[Heard]: ...

    async def until(self, reached: Callable[[list[Heard]], bool]) -> None:
        """Wait until what was heard is so."""
        ...

    async def until_it_gave_up(self) -> None:
        """Wait until it does not come back any more."""
        ...


class Curl:
    """One curl after the other, each sent what the one before has heard last."""

    def __init__(self, url: str, who: str) -> None:
        self._url = url
        self._who = who
        self._changed = asyncio.Event()
        self.heard: list[Heard] = []
        self.text = b""
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        last_id = ""
        while True:
            last_id, status = await self._once(last_id)
            if status == "204":
                return
            assert status in ("200", "000"), status
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _once(self, last_id: str) -> tuple[str, str]:
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-sN", "-w", "%{stderr}%{http_code}"),
            *("-H", f"Authorization: Bearer {self._who}"),
            *(("-H", f"Last-Event-ID: {last_id}") if last_id else ()),
            self._url,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert curl.stdout is not None
        assert curl.stderr is not None
        parser = Parser(last_id)
        try:
            while text := await curl.stdout.read(65536):
                self.text += text
                self.heard += parser.feed(text)
                self._changed.set()
            return parser.last_id, (await curl.stderr.read()).decode()
        finally:
            if curl.returncode is None:
                curl.kill()
            await curl.wait()

    async def until(self, reached: Callable[[list[Heard]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not reached(self.heard):
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait({changed, self._following}, return_when="FIRST_COMPLETED")
                changed.cancel()
                if self._following.done():
                    self._following.result()
                    assert reached(self.heard), self.heard

    async def until_it_gave_up(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._following

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)


class Browser:
    """Chromium with a page that has an EventSource and writes down what that hears."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.heard: list[Heard] = []

    async def follow(self, url: str, names: list[str]) -> None:
        await self._page.evaluate(
            """([url, names]) => {
                window.heard = [];
                window.source = new EventSource(url);
                for (const name of names)
                    source.addEventListener(
                        name, event => heard.push([name, event.lastEventId, event.data]));
            }""",
            [url, names],
        )

    async def until(self, reached: Callable[[list[Heard]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await self._look()
                if reached(self.heard):
                    return
                await asyncio.sleep(0.05)

    async def _look(self) -> None:
        found: list[list[str]] = await self._page.evaluate("() => heard")
        self.heard = [Heard(name, msgspec.json.decode(data), id_) for name, id_, data in found]

    async def until_it_gave_up(self) -> None:
        """EventSource.CLOSED: what a 204 makes it be."""
        await self._page.wait_for_function(
            "() => source.readyState === 2", timeout=1000 * PATIENCE_SECONDS
        )


def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no Chromium here")
    return found


@asynccontextmanager
async def browsing(origin: str) -> AsyncIterator[Browser]:
    """A browser that shows the empty page of an origin."""
    program = chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page: Any = await browser.new_page()
        await page.goto(origin)
        yield Browser(page)
        await browser.close()


def empty_page() -> WebServer:
    """An origin of its own, as the page of somebody's application has."""
    return WebServer(body(b"<!doctype html><title>jobs</title>", content_type="text/html"))
