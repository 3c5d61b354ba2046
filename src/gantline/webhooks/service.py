"""The webhooks of an application: what the API and the command line call, and what workers run."""

from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gantline.consumers.event_reader import DeclaredConsumer
from gantline.contract.errors import GantlineError
from gantline.contract.job import DELIVERY_QUEUE
from gantline.contract.policy import Policy
from gantline.contract.webhook import DELIVERY_TYPE, IssuedWebhook, WebhookSpec
from gantline.manager.cursors import begin_cursor
from gantline.webhooks.concurrency import DEFAULT_SLOTS, EndpointLimits
from gantline.webhooks.deliveries import Deliveries
from gantline.webhooks.delivery_handler import DeliveryHandler
from gantline.webhooks.disabling import EndpointDisabler
from gantline.webhooks.endpoints import WebhookApp
from gantline.webhooks.fan_out import CONSUMER, FanOut
from gantline.webhooks.retry import SCHEDULE
from gantline.webhooks.settings import WebhookSettings
from gantline.worker.handler import Handler, make_handler

if TYPE_CHECKING:
    from gantline.webhooks.http_sender import HttpSender

# Longer than the longest timeout of an endpoint, with all that is around it.
_RUN_TIMEOUT = timedelta(minutes=3)
# A delivery is postponed as often as the backlog before it takes; only attempts are counted.
_MOST_SNOOZES = 10**9


class WebhookService(Deliveries):
    """The webhooks of an application. A tenant is named in every call."""

    def __init__(self, app: WebhookApp, settings: WebhookSettings) -> None:
        _require_modules("cryptography", "httpcore2")
        super().__init__(app, settings)
        self._limits = EndpointLimits()

    async def create(
        self, spec: WebhookSpec, *, tenant_id: str, actor: str, secret: str | None = None
    ) -> IssuedWebhook:
        """Create an endpoint; it gets the events from now on, also those while no worker runs."""
        await begin_cursor(self._app.store, CONSUMER, from_start=False)
        return await super().create(spec, tenant_id=tenant_id, actor=actor, secret=secret)

    # -- for workers ------------------------------------------------------------------------------

    def handler(self) -> Handler:
        """Make the handler of deliveries. Their type is not declared, so nobody can submit one."""
        disabler = EndpointDisabler(
            self._app, self, self._failures, disable_after=self.settings.disable_after
        )
        handler = DeliveryHandler(self._app, self, self._make_sender, self._limits, disabler)
        return make_handler(
            DELIVERY_TYPE,
            handler.deliver,
            queue=DELIVERY_QUEUE,
            timeout=_RUN_TIMEOUT,
            policy=Policy(retry=SCHEDULE, max_snoozes=_MOST_SNOOZES),
        )

    def _make_sender(self) -> "HttpSender":
        from gantline.webhooks.http_sender import HttpSender  # an extra, and slow to import

        return HttpSender(self._guard, ssl_context=self.settings.ssl_context)

    def serve(self, queues: Mapping[str, int]) -> None:
        """Divide the slots that this process has for deliveries among the tenants."""
        self._limits.quotas.slots = queues.get(DELIVERY_QUEUE, DEFAULT_SLOTS)

    def consumer(self) -> DeclaredConsumer:
        """The consumer that reads the events and submits their deliveries."""
        return DeclaredConsumer(consumer=FanOut(self._app, self), wants=FanOut.wants)


def _require_modules(*modules: str) -> None:
    for name in modules:
        if find_spec(name) is None:
            raise GantlineError(
                f"Webhooks need the module {name}, which is not installed.",
                next_step="Run `pip install 'gantline[webhooks]'`.",
            )
