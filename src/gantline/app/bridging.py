"""The application's bridge: envelopes that come in and go out through a broker, and outcomes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gantline.bridge.bridge import Bridge, OutcomePublisher
from gantline.bridge.broker import parse_bridge_url
from gantline.bridge.intake import Intake
from gantline.bridge.sending import EnvelopeSender
from gantline.contract.errors import StoreMisconfigured

if TYPE_CHECKING:
    from gantline.app.gantline import Gantline
    from gantline.bridge.rabbitmq import RabbitBroker


class Bridging(EnvelopeSender):
    """Made of a URL; connects when it is used."""

    def __init__(self, app: "Gantline", url: str) -> None:
        self._app = app
        self._location = parse_bridge_url(url)
        self._broker = self._make_broker()
        self.running: Bridge | None = None
        """The bridge that takes messages in in this process, while there is one."""
        if outcomes := self._location.outcomes:
            app.add_consumer(OutcomePublisher(self._broker, name=f"bridge:{outcomes}"))
        app.on_close(self._broker.close)
        exchange, queue = self._location.exchange, app.defaults.queue
        super().__init__(app, self._broker, name=f"bridge-send:{exchange}", queue=queue)

    def _make_broker(self) -> "RabbitBroker":
        try:
            from gantline.bridge.rabbitmq import RabbitBroker  # only its users have the driver
        except ModuleNotFoundError as error:
            raise StoreMisconfigured(
                f"A bridge needs the module {error.name}, which is not installed.",
                next_step="Run `pip install 'gantline[rabbitmq]'`.",
            ) from error
        return RabbitBroker(self._location)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Bridge]:
        """Take messages in as long as the block lasts."""
        location = self._location
        tenant = location.tenant or self._app.default_tenant
        intake = Intake(self._app, tenant=tenant, trusts=location.trusts)
        self.running = bridge = Bridge(self._app, self._make_broker(), intake)
        running = asyncio.create_task(bridge.run())
        try:
            yield bridge
        finally:
            self.running = None
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
