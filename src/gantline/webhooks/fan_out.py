"""The fan-out: reads every event, and submits a delivery for each endpoint that subscribes."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from gantline.contract.job_event import JobEvent
from gantline.contract.submission import NewJob
from gantline.contract.webhook import EVENT_TYPES
from gantline.webhooks.bodies import encode_event
from gantline.webhooks.delivery import build_delivery, build_delivery_job
from gantline.webhooks.endpoint import StoredEndpoint
from gantline.webhooks.endpoints import Endpoints, WebhookApp

CONSUMER: Final = "webhooks"
# A page of events may mean ten thousands of deliveries, of 20 kB each.
_MOST_AT_ONCE: Final = 500


class FanOut:
    """A durable consumer. Reading an event twice changes nothing: the id of a delivery is computed
    of its endpoint and its event, and the first insert counts."""

    name = CONSUMER

    def __init__(self, app: WebhookApp, endpoints: Endpoints) -> None:
        self._app = app
        self._endpoints = endpoints

    @staticmethod
    def wants(event_type: str, job_type: str) -> bool:
        """Filter events. Those of deliveries, which are jobs too, reach no consumer."""
        return event_type in EVENT_TYPES or not event_type.startswith("job.")

    async def consume(self, events: Sequence[JobEvent]) -> None:
        # Read after the events, so that an endpoint misses no event after its creation.
        endpoints = {
            tenant_id: await self._endpoints.read(tenant_id)
            for tenant_id in {event.job.tenant_id for event in events}
        }
        # A conflict is an endpoint whose format was changed between two readings.
        jobs: list[NewJob] = []
        for event in events:
            jobs += self._deliveries(event, endpoints[event.job.tenant_id])
            if len(jobs) >= _MOST_AT_ONCE:
                await self._app.manager.submitter.insert(jobs)
                jobs = []
        if jobs:
            await self._app.manager.submitter.insert(jobs)

    def _deliveries(
        self, event: JobEvent, endpoints: Mapping[UUID, StoredEndpoint]
    ) -> list[NewJob]:
        now = self._app.clock.now()
        return [
            build_delivery_job(
                build_delivery(
                    encode_event(event, stored.spec.format, source=self._endpoints.settings.source),
                    webhook_id,
                    event.event_id,
                ),
                stored.spec,
                job_id=stored.delivery_id(event.event_id),
                tenant_id=event.job.tenant_id,
                now=now,
                correlation_id=event.job.correlation_id,
                parent=event.job.job_id,
            )
            for webhook_id, stored in endpoints.items()
            if stored.subscribes_to(event)
        ]
