"""The demo, `make run`: web page and receiver in one process, the worker in another, on SQLite.

A first sample is sent in at once, so that there is a passport to see, with or without a browser.
"""

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette

from examples.battery_passport.assembly import make_jobs
from examples.battery_passport.demo_worker import WorkerProcess
from examples.battery_passport.intake import receive
from examples.battery_passport.receiver import Receiver
from examples.battery_passport.rules import current_package
from examples.battery_passport.samples import SAMPLES
from examples.battery_passport.signing import KEY_VARIABLE, new_key
from examples.battery_passport.steps import Rules, run_rule_tests
from examples.battery_passport.terminal import Terminal
from examples.battery_passport.web import TENANTS, make_web
from gantline import Gantline, GantlineError, JobEvent
from gantline.api.server import ApiServer
from gantline.auth import Peppers
from gantline.webhooks import Vault, WebhookSettings, read_networks

PORTS: Final = range(8080, 8100)
FIRST_RUN: Final = "first-sample"


class Demo:
    """The web side, and the worker it keeps running; a port, and a folder named after it."""

    def __init__(self, port: int, *, pace_seconds: float) -> None:
        """Take the port; raise GantlineError where it is taken."""
        self.folder = Path(".demo") / f"battery-passport-{port}"
        self._store = f"sqlite:///{self.folder}/passports.db"
        self._terminal = Terminal()
        self._receiver = Receiver()
        self._first: asyncio.Future[JobEvent] | None = None
        self.jobs = self._make_jobs()
        worker = WorkerProcess(self._store, pace_seconds=pace_seconds, say=self._terminal.say)
        self.web: Starlette = make_web(self.jobs, self._receiver, worker)
        self.server = ApiServer(self.web, host="127.0.0.1", port=port)

    def _make_jobs(self) -> Gantline:
        keys = Vault(Peppers.random())
        allowed = read_networks("127.0.0.1/32")
        jobs = make_jobs(self._store, webhooks=WebhookSettings(vault=keys, allow=allowed))
        jobs.on("job.completed", "job.failed", "job.poisoned", name="demo.terminal")(self._hear)
        return jobs

    async def _hear(self, event: JobEvent) -> None:
        self._terminal.show(event)
        is_last = event.job.job_type == "EXPORT_PASSPORT" or event.type != "job.completed"
        if event.job.correlation_id == FIRST_RUN and is_last and self._first is not None:
            self._first.set_result(event)

    async def run(self, *, is_once: bool, opens_browser: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.server.stop)
        self._first = loop.create_future()
        self._terminal.say("Battery passports, on a SQLite file and nothing else.", "bold")
        self._terminal.say(f"Open {self.server.url} – Ctrl-C stops.\n")
        async with self.web.router.lifespan_context(self.web):
            serving = asyncio.create_task(self.server.serve())
            for tenant in TENANTS:
                url = f"{self.server.url}/receiver/{tenant}"
                await self._receiver.register(self.jobs, tenant, url)
            await self._send_first_sample()
            either: list[asyncio.Future[Any]] = [serving, self._first]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._first.done():
                self._show(self._first.result(), opens_browser=opens_browser)
            if is_once:
                self.server.stop()
            await serving
        self._terminal.say(
            "\nStopped. The next run begins anew; `make run KEEP=1` goes on with this one."
        )

    async def _send_first_sample(self) -> None:
        tests = await run_rule_tests.submit(Rules(current_package().rules_id))
        await tests.wait()  # a passport is compiled by published rules only
        sample, tenant = SAMPLES[0], next(iter(TENANTS))
        names = ", ".join(file.name for file in sample.files)
        self._terminal.say(f"A first sample, {sample.title}: {names}")
        for file in sample.files:
            handle = await receive(
                self.jobs, file.name, file.read_bytes(), tenant=tenant, correlation_id=FIRST_RUN
            )
            if handle.duplicate:
                self._terminal.say(f"  {file.name} is known already, and so is what came of it.")

    def _show(self, event: JobEvent, *, opens_browser: bool) -> None:
        if event.entry.result is not None:
            done = msgspec.json.decode(event.entry.result)
            self._terminal.draw(done["qr"])
            url = f"{self.server.url}/passports/{done['passport_version_id']}"
            self._terminal.say("\nThe passport is done: scan its code, or open its files.")
            for name in done["artefacts"]:
                self._terminal.say(f"  {url}/{name}")
            self._terminal.say(f"More samples, live: {self.server.url}")
        if opens_browser:
            webbrowser.open(self.server.url)


def demo_on_a_free_port(ports: range, *, pace_seconds: float) -> Demo:
    for port in ports:
        with suppress(GantlineError):
            return Demo(port, pace_seconds=pace_seconds)
    raise SystemExit(f"No port from {ports[0]} to {ports[-1]} is free; name one with --port.")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.battery_passport", description=__doc__
    )
    parser.add_argument("--port", type=int, help="which port to serve; else a free one from 8080")
    parser.add_argument("--pace", type=float, default=0.4, help="seconds before each step")
    parser.add_argument("--keep", action="store_true", help="go on with what the last demo left")
    parser.add_argument("--once", action="store_true", help="end when the first passport is done")
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("GANTLINE_")]:
        del os.environ[name]  # they are for another application; the worker inherits the rest
    ports = PORTS if options.port is None else range(options.port, options.port + 1)
    demo = demo_on_a_free_port(ports, pace_seconds=options.pace)
    if not options.keep:
        shutil.rmtree(demo.folder, ignore_errors=True)
    demo.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(KEY_VARIABLE, new_key())
    # The terminal shows what happens to jobs; the worker's own lines would disturb that.
    logging.getLogger("gantline").setLevel(logging.CRITICAL)
    has_screen = sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    is_watched = sys.stdout.isatty() and has_screen and not options.once
    asyncio.run(demo.run(is_once=options.once, opens_browser=is_watched))


if __name__ == "__main__":
    main()
