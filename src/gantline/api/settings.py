"""Settings of the API, each with its default and unit."""

from gantline.api.rate_limits import RateLimits
from gantline.api.streams.settings import StreamSettings
from gantline.contract.bounds import CheckedStruct
from gantline.contract.errors import InvalidInput


class ApiSettings(CheckedStruct, frozen=True, kw_only=True):
    """Limits and choices of the API; the defaults are safe."""

    max_body_bytes: int = 1024 * 1024
    """The largest body that is read; a batch must fit too."""
    request_timeout_seconds: float = 30.0
    """How long a request may take, sending its body included, `Prefer: wait` not counted."""
    longest_wait_seconds: float = 30.0
    """The most that `Prefer: wait=N` is heeded."""
    most_waiting: int = 1000
    """How many requests of this process may wait by `Prefer` at once; more are answered at once."""
    retry_after_seconds: int = 1
    """After how long to ask again, as a 202 says."""
    hold_request_key_hours: float = 24.0
    """How long an Idempotency-Key is remembered."""
    cache_seconds: float = 0.0
    """How long jobs that have ended are kept in memory for reading; 0 is not at all."""
    cache_jobs: int = 10_000
    """How many of them."""
    most_at_once: int = 2000
    """How many requests of this process may be under way; more are answered 503 at once."""
    allowed_hosts: tuple[str, ...] = ()
    """Names in `Host` by which the API may be called; any by default. For an API that is not
    behind a proxy that checks it: no web page can call the API by a name of its own (rebinding)."""
    show_metrics: bool = False
    """Whether /metrics is served beside /healthz and /readyz; to everybody."""
    streams: StreamSettings = StreamSettings()
    rate_limits: RateLimits = RateLimits()
    """How often each key and each tenant may ask; without a limit by default."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose scripts may call the API from a browser; none by default."""
    mounted_at: str = ""
    """Where the API is mounted, for the status URLs that async endpoints outside of it give."""
    show_documentation: bool = True
    """Whether /api/openapi.json and its page are served; to everybody, like the problems' pages."""

    show_start_page: bool = False
    """Whether / is a page with links to what there is; `gantline dev` has it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if "*" in self.cors_origins:
            raise InvalidInput(
                "cors_origins may not be `*`.", next_step="Name the origins that may call the API."
            )
        if self.mounted_at and (not self.mounted_at.startswith("/") or self.mounted_at[-1] == "/"):
            raise InvalidInput(
                f"mounted_at is {self.mounted_at!r}.", next_step="Write it as /gantline."
            )
