"""Calls: every verb runs through here, with a deadline, retries and our errors.

A call is one script. A call whose response was lost is repeated: all verbs allow that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from redis.exceptions import NoScriptError, ReadOnlyError

from gantline.contract.errors import StoreMisconfigured, StoreUnavailable
from gantline.stores.pool import Pools, Purpose, raise_if_cancelled, retry_waits
from gantline.stores.redis import failures
from gantline.stores.redis.connection import Argument, Connection
from gantline.stores.redis.location import Location, Node
from gantline.stores.redis.scripts import Script


class Nodes:
    """The servers of the URL and of the cluster. One is used until it fails or names another."""

    def __init__(self, location: Location) -> None:
        self._known = list(location.nodes)
        self._is_cluster = location.cluster
        self.current: Node | None = self._known[0] if self._known else None
        """None for a local socket."""

    @property
    def may_be_replicas(self) -> bool:
        """Whether only one of several takes writes, and the others do not say which it is."""
        return len(self._known) > 1 and not self._is_cluster

    def add(self, nodes: list[Node]) -> None:
        self._known += [node for node in nodes if node not in self._known]

    def choose_next(self, error: Exception, failed: Node | None) -> bool:
        """Choose the next server after an error; True where it can be called at once."""
        if failed is None or failed != self.current:
            return False  # another call has chosen already
        there = failures.find_moved_node(error)
        if there is not None and self._is_cluster:
            host, port = there
            self.current = Node(host or failed.host, port)
            self.add([self.current])
            return True
        if failures.is_lost(error) or isinstance(error, ReadOnlyError):
            self.current = self._next_after(failed)
        return False

    def _next_after(self, node: Node) -> Node:
        index = self._known.index(node) if node in self._known else -1
        return self._known[(index + 1) % len(self._known)]


T = TypeVar("T")
Call = Callable[[Connection], Awaitable[Any]]
Batches = Sequence[Sequence[Argument]]
"""The arguments of each call of a script."""

BATCH: Final = 250
"""How many jobs a script writes: 3 ms in which the server serves no other client."""
AT_ONCE: Final = 2
"""How many batches are sent together: while we read the first response, the server goes on."""
_REPLICA_SECONDS: Final = 5.0
# A script, since a plain SET is refused when the memory is full.
_MARK: Final = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1] .. ':replicated', 1)"
_MILLIS: Final = 1000


async def _refuse_replica(connection: Connection) -> None:
    """Raise where the server is a replica: it refuses writes by itself, but answers reads, with
    what it has until then."""
    (role,) = await connection.ask(("ROLE",))
    if not isinstance(role, Exception) and role[0] != b"master":  # an ACL may forbid the question
        raise ReadOnlyError("the server is a replica")


class Reply(NamedTuple):
    value: Any
    is_repeated: bool
    """Whether an earlier attempt may have done the same, and its response was lost."""


class Calls:
    """Runs scripts on connections of the calling event loop."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._seconds = location.deadline.total_seconds()
        self._nodes = Nodes(location)
        self._pools = Pools(self._connect, location.connections)

    async def run(self, script: Script, *argv: Argument, purpose: Purpose = Purpose.VERBS) -> Any:
        """Call a script of the prefix; return its reply."""
        return (await self.run_each(script, [argv], purpose=purpose)).value[0]

    async def run_each(
        self,
        script: Script,
        batches: Batches | Callable[[], Batches],
        *,
        purpose: Purpose = Purpose.VERBS,
    ) -> Reply:
        """Call a script for each batch, in order; all are sent before a response is read.

        A function draws them anew for each attempt.
        """

        async def call(connection: Connection) -> Any:
            drawn = batches() if callable(batches) else batches
            rests = [(1, self._location.tag, *argv) for argv in drawn]
            responses = await connection.ask(*(("EVALSHA", script.digest, *rest) for rest in rests))
            failed = _find_error(responses)
            if isinstance(failed, NoScriptError):
                responses = await connection.ask(*(("EVAL", script.text, *rest) for rest in rests))
                failed = _find_error(responses)
            if failed is None and script.writes_jobs and self._location.replicas:
                failed = await self._await_replicas(connection)
            return failed or responses

        return await self._run_in_time(call, purpose)

    async def ask(self, *command: Argument) -> Any:
        """Send a plain command; Refused where the server does not know or allow it."""

        async def call(connection: Connection) -> Any:
            (response,) = await connection.ask(command)
            if isinstance(response, Exception) and not failures.is_retryable(response):
                return Refused(response)
            return response

        return (await self._run_in_time(call, Purpose.VERBS)).value

    async def find_cluster_nodes(self) -> None:
        """Find all servers of a cluster: any of them knows which one has the slot."""
        if not self._location.cluster:
            return
        response = await self.ask("CLUSTER", "SLOTS")
        if isinstance(response, Refused):
            raise StoreMisconfigured(
                "The server is no part of a cluster.", next_step="Write redis:// in the store URL."
            )
        self._nodes.add([Node(one[0].decode(), one[1]) for slots in response for one in slots[2:]])

    async def _await_replicas(self, connection: Connection) -> Exception | None:
        """Wait until replicas have what was written, or say why they have not.

        WAIT is about this connection's last write, and a verb that is repeated may write nothing
        itself: so something is written.
        """
        replicas, mark = self._location.replicas, ("EVAL", _MARK, 1, self._location.tag)
        # Within the deadline, so that the error can say what was waited for.
        millis = int(min(_REPLICA_SECONDS, self._seconds / 2) * _MILLIS)
        marked, count = await connection.ask(mark, ("WAIT", replicas, millis))
        if isinstance(marked, Exception) or isinstance(count, Exception):
            return marked if isinstance(marked, Exception) else count
        if count < replicas:
            raise StoreUnavailable(
                f"{count} of {replicas} replicas have taken the write in time.",
                next_step="Check the replicas. Whether it stays is not known; it may be repeated.",
            )
        return None

    async def _run_in_time(self, call: Call, purpose: Purpose) -> Reply:
        failed: list[Exception] = []
        try:
            async with asyncio.timeout(self._seconds):
                return await self._retry(call, purpose, failed)
        except TimeoutError:
            pass
        raise failures.translate_with_cause(failed[-1]) if failed else self._no_response()

    async def _retry(self, call: Call, purpose: Purpose, failed: list[Exception]) -> Reply:
        pool, waits, is_repeated = self._pools.get(purpose), retry_waits(), False
        while True:
            used: Connection | None = None
            try:
                async with pool.connection() as used:
                    response = await call(used)
                if not isinstance(response, Exception):
                    return Reply(response, is_repeated)
                failed.append(response)
            except failures.RAISED as error:
                raise_if_cancelled()
                failed.append(error)
            met = failed[-1]
            is_elsewhere = failures.find_moved_node(met) is not None and not self._location.cluster
            if is_elsewhere or not failures.is_retryable(met):
                raise failures.translate_with_cause(met)
            is_repeated |= used is not None and failures.is_lost(met)
            follows = self._nodes.choose_next(met, used.node if used else None)
            await pool.drop_idle()
            if not follows:
                await asyncio.sleep(next(waits))

    def _no_response(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"Redis has not answered within {self._seconds:g} s.",
            next_step="Look at SLOWLOG and at what keeps the server busy.",
        )

    async def _connect(self) -> Connection:
        node = self._nodes.current
        connection = Connection(self._location, node)
        try:
            await connection.open()
            if self._nodes.may_be_replicas:
                await _refuse_replica(connection)
        except BaseException as error:
            await connection.close()
            if isinstance(error, failures.RAISED):
                self._nodes.choose_next(error, node)
            raise
        return connection

    async def close(self) -> None:
        await self._pools.close()


class Refused(NamedTuple):
    """A plain command that the server does not allow or know."""

    error: Exception


def _find_error(responses: Sequence[Any]) -> Exception | None:
    """The first of them; a loop, since two generators were 1 µs of each call."""
    for response in responses:
        if isinstance(response, Exception):
            return response
    return None


def each_of(replies: Sequence[Any], batches: Sequence[Sequence[object]]) -> list[Any]:
    """All items of the replies to batches; raise ValueError where one is not as many."""
    items: list[Any] = []
    for reply, batch in zip(replies, batches, strict=True):
        if not isinstance(reply, list) or len(reply) != len(batch):
            raise ValueError(f"{len(batch)} items were expected")
        items += reply
    return items


def check_moved_on(is_further: bool) -> None:
    """Raise ValueError where a script says to go on where it was asked to begin, for ever."""
    if not is_further:
        raise ValueError("the next page begins before this one")


def in_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
