"""What a server of one's own says where its program is not installed."""

from _pytest.outcomes import Skipped  # pytest.skip.Exception, under a name that mypy knows


class ServerMissing(Skipped):
    """A test that needs the server is skipped by it; a benchmark leaves out what needs it."""
