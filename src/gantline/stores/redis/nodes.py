"""Which of several servers to talk to: the same, until it fails or names another."""

from redis.exceptions import ReadOnlyError

from gantline.stores.redis import failures
from gantline.stores.redis.location import Location, Node


class Nodes:
    """The servers of the URL, and those that a cluster has told of."""

    def __init__(self, location: Location) -> None:
        self._known = list(location.nodes)
        self._is_cluster = location.cluster
        self.current: Node | None = self._known[0] if self._known else None
        """None for a local socket."""

    def add(self, nodes: list[Node]) -> None:
        self._known += [node for node in nodes if node not in self._known]

    def learn(self, error: Exception, asked: Node | None) -> bool:
        """Choose whom to ask next after an error; True where it is to be asked at once."""
        if asked is None or asked != self.current:
            return False  # another call has learnt it already
        there = failures.moved_to(error)
        if there is not None and self._is_cluster:
            host, port = there
            self.current = Node(host or asked.host, port)
            self.add([self.current])
            return True
        if failures.is_lost(error) or isinstance(error, ReadOnlyError):
            self.current = self._behind(asked)
        return False

    def _behind(self, node: Node) -> Node:
        place = self._known.index(node) if node in self._known else -1
        return self._known[(place + 1) % len(self._known)]
