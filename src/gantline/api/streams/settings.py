"""Settings of event streams, each with its default and unit."""

from gantline.api.shares import Share
from gantline.contract.bounds import CheckedStruct


class StreamSettings(CheckedStruct, frozen=True, kw_only=True):
    """How many streams there may be, and how long one goes on."""

    open: Share = Share(of_principal=20, of_tenant=200, in_process=1000)
    """Streams that are open; more are answered 429."""
    ping_seconds: float = 15.0
    """How often a comment is sent, so that no proxy takes the connection for dead."""
    check_seconds: float = 3.0
    """How often it is checked again whether the client may still follow the stream."""
    longest_seconds: float = 900.0
    """After how long a stream is ended; the client comes back and goes on where it was."""
    longest_unchecked_seconds: float = 60.0
    """The same where the client cannot be checked again: a web framework gave the principal."""
    stall_seconds: float = 30.0
    """How long a client may read nothing of what was sent before the stream is dropped."""
    most_waiting_bytes: int = 256 * 1024
    """How much may wait for a slow client; then its stream is ended, for it to come back."""
    most_missed: int = 10_000
    """How many events of all jobs may lie between a client's Last-Event-ID and now; else reset."""
    progress_seconds: float = 0.5
    """How often the jobs that streams name are looked at for what leaves no event: progress."""
