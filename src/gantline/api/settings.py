"""Settings of the API, each with its default and unit."""

from gantline.api.rate_limits import RateLimits
from gantline.api.shares import Share
from gantline.api.streams.settings import StreamSettings
from gantline.contract.bounds import CheckedStruct, Count
from gantline.contract.errors import InvalidInput


class ApiSettings(CheckedStruct, frozen=True, kw_only=True):
    """Limits and choices of the API; the defaults are safe."""

    max_body_bytes: int = 1024 * 1024
    """The largest body that is read; a batch must fit too."""
    body_stall_seconds: float = 5.0
    """How long nothing of a body may arrive before it is given up."""
    body_seconds: float = 15.0
    """How long a body may take to arrive."""
    request_timeout_seconds: float = 30.0
    """How long a request may take, sending its body included, `Prefer: wait` not counted."""
    longest_wait_seconds: float = 30.0
    """The most that `Prefer: wait=N` is heeded."""
    requests: Share = Share(of_principal=500, of_tenant=1000, in_process=2000)
    """Requests under way; more of one principal or tenant are answered 429, more of all 503. Who is
    not known yet is counted by his address, as a tenant."""
    bodies: Share = Share(of_principal=100, of_tenant=200, in_process=1000)
    """Bodies that are not there as a whole; more are answered 429 or 503."""
    waits: Share = Share(of_principal=100, of_tenant=250, in_process=1000)
    """Requests that wait by `Prefer`; more do not wait."""
    turns: Count = 64
    """How many requests of one tenant go on at a time; more wait for their turn."""
    turns_beside_others: Count = 8
    """The same while other tenants ask as well."""
    long_turns: Count = 4
    """The same for requests about many things: batches, lists, statistics, new event streams."""
    slow_code_seconds: float = 0.05
    """How long a payload's checks, a template or an authorizer may hold up all other requests.
    Where it does twice within a few calls, or for twice as long, it is logged, and that code is
    called in a thread from then on. With 0 it is from the start."""
    code_timeout_seconds: float = 5.0
    """How long it may take in a thread, and an authorizer that is async; then the request is
    answered 503."""
    retry_after_seconds: int = 1
    """After how long to ask again, as a 202 says."""
    hold_request_key_hours: float = 24.0
    """How long an Idempotency-Key is remembered."""
    queues_per_tenant: int = 1000
    """In how many queues a tenant may have jobs before a new one is refused to those who may name
    queues that a job type does not declare. Each is a line of everybody's statistics."""
    allowed_hosts: tuple[str, ...] = ()
    """Names in `Host` by which the API may be called; any by default. For an API that is not
    behind a proxy that checks it: no web page can call the API by a name of its own (rebinding)."""
    live_path: str = "/healthz"
    """Where the page for liveness is as well, such as /v1/health/live."""
    ready_path: str = "/readyz"
    """Where the page for readiness is as well."""
    show_metrics: bool = False
    """Whether /metrics is served beside /healthz and /readyz; to everybody."""
    streams: StreamSettings = StreamSettings()
    rate_limits: RateLimits = RateLimits()
    """How often each key and each tenant may ask."""
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
