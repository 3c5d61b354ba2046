"""The handler registry: which handler runs which type of job."""

from gantline.contract.errors import InvalidInput
from gantline.contract.policy import DEFAULT_POLICY, Policy
from gantline.contract.status import Event
from gantline.worker.handler import Handler


class HandlerRegistry:
    """One handler per type; aliases lead to the handler of the newer name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._logging: dict[Event, tuple[str, ...]] = {}

    def add(self, handler: Handler) -> None:
        for name in handler.job_types:
            known = self._handlers.get(name)
            if known is not None and known.function is not handler.function:
                raise InvalidInput(
                    f"The job type {name!r} has two handlers, {known.function.__qualname__} and "
                    f"{handler.function.__qualname__}.",
                    next_step="Rename one of them.",
                )
            self._handlers[name] = handler
            for event in handler.policy.events:
                self._logging[event] = (*self._logging.get(event, ()), name)

    def find(self, job_type: str) -> Handler | None:
        return self._handlers.get(job_type)

    def policy_for(self, job_type: str) -> Policy:
        handler = self._handlers.get(job_type)
        return handler.policy if handler else DEFAULT_POLICY

    def logging(self, event: Event) -> tuple[str, ...]:
        """The types that ask for an event of ON_REQUEST."""
        return self._logging.get(event, ())

    @property
    def crash_budgets(self) -> dict[str, int]:
        return {name: handler.policy.max_crashes for name, handler in self._handlers.items()}

    @property
    def handlers(self) -> list[Handler]:
        """Each handler once, in the order in which they were added."""
        found = {id(handler): handler for handler in self._handlers.values()}
        return list(found.values())

    @property
    def job_types(self) -> tuple[str, ...]:
        return tuple(self._handlers)
