"""The application's bridge: envelopes that come in and go out through a broker, and outcomes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from gantline.bridge.bridge import Bridge, OutcomePublisher
from gantline.bridge.broker import Topic, parse_bridge_url
from gantline.bridge.intake import Intake
from gantline.bridge.sending import (
    EnvelopePublisher,
    make_send_handler,
    read_sent,
    wrap_sent,
)
from gantline.contract.envelope import AnyEnvelope
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.job import Job
from gantline.manager.event_reader import DeclaredConsumer
from gantline.manager.submitter import Submission
from gantline.worker.handler import Handler

if TYPE_CHECKING:
    from gantline.app.gantline import Gantline
    from gantline.bridge.rabbitmq import RabbitBroker


class Bridging:
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

    async def send(self, envelope: AnyEnvelope, *, connection: Any = None) -> Job:
        """Have an envelope published for another system; it is durable when this returns.

        Workers publish in the order of these calls, at least once, by the name of the job type.
        With `connection` it is sent if, and only if, the caller's transaction is committed. Return
        the envelope as it is sent; raise InvalidInput.
        """
        app, broker = self._app, self._broker
        job, tenant = read_sent(envelope, default_tenant=app.default_tenant)
        prepare = app.manager.submitter.prepare
        prepare(Submission(job))  # the contract holds for it too
        broker.check([Topic(job.job_type, (job.job_type,))])
        queue, now = app.defaults.queue, app.clock.now()
        carrier = wrap_sent(job, tenant=tenant, queue=queue, now=now)
        await app.submit_prepared(prepare(Submission(carrier)), connection=connection)
        return job

    def handler(self) -> Handler:
        """The handler of what is sent. Its type is not declared, so nobody can submit one."""
        return make_send_handler(self._app.defaults.queue)

    def sender(self) -> DeclaredConsumer:
        """The consumer that publishes what is sent."""
        publisher = EnvelopePublisher(self._broker, name=f"bridge-send:{self._location.exchange}")
        wants = EnvelopePublisher.wants
        return DeclaredConsumer(consumer=publisher, from_start=True, wants=wants, own=True)

    def _make_broker(self) -> "RabbitBroker":
        try:
            from gantline.bridge.rabbitmq import RabbitBroker  # only its users have the driver
        except ModuleNotFoundError as error:
            raise StoreMisconfigured(
                f"A bridge needs the module {error.name}, which is not installed.",
                next_step="Run `pip install gantline[rabbitmq]`.",
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
