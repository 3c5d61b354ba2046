"""celery with late acknowledgements: at least once, once its visibility timeout is over."""

from importlib import import_module
from typing import Any, Final

from benchmarks.contest import contender
from benchmarks.contest.meter import INVOICE

_SETTINGS: Final = {
    "task_acks_late": True,
    "task_ignore_result": True,
    "worker_prefetch_multiplier": 4,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "broker_connection_retry_on_startup": True,
}


class Contender(contender.Contender):
    """In threads of one process, so that what it takes can be compared; without gossip."""

    is_blocking = True

    def __init__(self, url: str, *, more_types: int = 0) -> None:
        super().__init__(url, more_types=more_types)
        self._app: Any = import_module("celery").Celery(broker=url)
        self._app.conf.update(_SETTINGS)

        @self._app.task(name="no_op")  # type: ignore[untyped-decorator]  # read without its types
        def no_op(invoice: dict[str, Any]) -> None:
            self.note_done()

        @self._app.task(name="timed")  # type: ignore[untyped-decorator]  # read without its types
        def timed(submitted_ns: int) -> None:
            self.note_delay(submitted_ns)

        self._no_op: Any = no_op
        self._timed: Any = timed

    async def submit(self) -> None:
        self._no_op.apply_async((INVOICE,))

    async def submit_moment(self, submitted_ns: int) -> None:
        self._timed.apply_async((submitted_ns,))

    async def work(self, slots: int) -> None:
        self._app.Worker(
            pool="threads",
            concurrency=slots,
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        ).start()
