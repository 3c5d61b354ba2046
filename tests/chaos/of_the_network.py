"""Troubles of the network between processes and server."""

import asyncio

from gantline.proving.fleet import Fleet
from gantline.proving.proxy import Proxy, Way
from tests.chaos.trouble import Switched, Trouble


def _proxies(fleet: Fleet) -> list[Proxy]:
    return [slot.proxy for slot in fleet.slots if slot.proxy is not None]


class Latency(Switched):
    """An answer comes 200 ms later than it would."""

    name = "latency of 200 ms"
    stops_all = False
    calm_seconds = 1.0
    seconds = (8.0, 12.0)

    def begin(self, fleet: Fleet) -> None:
        for proxy in _proxies(fleet):
            proxy.latency_seconds = 0.1

    def end(self, fleet: Fleet) -> None:
        for proxy in _proxies(fleet):
            proxy.latency_seconds = 0.0


class BlackHole(Trouble):
    """Nothing comes through in either direction, for all; then all of it, or a reset."""

    name = "black hole"

    async def make(self, fleet: Fleet) -> None:
        while True:
            await asyncio.sleep(3)
            seconds, drop = self.chance.uniform(1, 7), self.chance.random() < 0.5
            fleet.log.add(self.name, "all", seconds)
            fleet.health.hinder_all(self.name)
            try:
                held = [
                    proxy.hold(way, seconds, drop=drop)
                    for proxy in _proxies(fleet)
                    for way in ("request", "answer")
                ]
                await asyncio.gather(*held)
            finally:
                fleet.health.free_all(self.name)


class HalfOpen(Trouble):
    """One side of all connections of a process is gone, and the other sees it seconds later.

    Until then a server keeps the locks of a transaction that was under way.
    """

    name = "half-open connections"
    _unseen_seconds = 8.0

    async def make(self, fleet: Fleet) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(self.chance.uniform(0.5, 2))
                slot = self.chance.choice(fleet.slots)
                gone: Way = self.chance.choice(("request", "answer"))
                if slot.proxy is not None and slot.proxy.leave_half_open(gone):
                    fleet.log.add(self.name, slot.process_name, self._unseen_seconds)
                    loop.call_later(self._unseen_seconds, slot.proxy.end_half_open)
        finally:
            for proxy in _proxies(fleet):
                proxy.end_half_open()
