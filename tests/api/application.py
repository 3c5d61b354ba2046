"""The application that the tests of the API serve, and who may ask it."""

from datetime import timedelta

import msgspec

from gantline import Context, Gantline, Permanent
from gantline.auth.action import Action
from gantline.auth.authenticator import Credentials
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Principal, Role
from gantline.contract.audit import AuditEntry
from gantline.contract.clock import Clock
from gantline.contract.errors import InvalidCredentials
from gantline.contract.store import JobStore
from gantline.webhooks.secret_encryption import Vault
from gantline.webhooks.settings import WebhookSettings


class Document(msgspec.Struct, rename="camel"):
    document_id: str
    row_version: int = 1
    flags: list[str] = msgspec.field(default_factory=list)


async def found_in_public(host: str, port: int) -> list[str]:
    """Whatever name a test makes up leads to a public address, which nobody asks."""
    return ["93.184.215.14"]


def make_jobs(store: str | JobStore, clock: Clock | None = None) -> Gantline:
    webhooks = WebhookSettings(vault=Vault(Peppers.random()), resolve=found_in_public)
    jobs = Gantline(store, webhooks=webhooks)
    jobs.move_to(store, clock=clock)

    @jobs.job(
        "document-indexing",
        subject="{document_id}",
        idempotency_key="doc-{document_id}-v{row_version}",
        queue="documents",
        queues=("slow",),
        timeout=timedelta(seconds=30),
        aliases=("ai-indexing",),
    )
    async def index(document: Document, ctx: Context) -> dict[str, int]:
        """Index a document."""
        await ctx.progress(50, "parsed")
        if document.document_id == "missing":
            raise Permanent("DOCUMENT_UNKNOWN", "There is no such document.")
        return {"pages": 3}

    @jobs.job("mail", max_depth=5, queues=("a", "b"))
    async def mail(to: str) -> None:
        """Send a mail."""

    @jobs.job("owned", key_scope="owner")
    async def owned(document: Document) -> None:
        """Have idempotency keys that each owner has for himself."""

    @jobs.job("sweep", queues=("q0", "q1", "q2", "full"))
    async def sweep() -> None:
        """Tidy up; needs no payload."""

    return jobs


PRINCIPALS = {
    "alice": Principal(id="user:alice", tenant_id="acme"),
    "bob": Principal(id="user:bob", tenant_id="acme", subjects=frozenset({"doc-of-bob"})),
    "viewer": Principal(id="user:viewer", tenant_id="acme", roles=frozenset({Role.VIEWER})),
    "operator": Principal(id="user:operator", tenant_id="acme", roles=frozenset({Role.OPERATOR})),
    "admin": Principal(id="user:admin", tenant_id="acme", roles=frozenset({Role.ADMIN})),
    "mailer": Principal(
        id="key:mailer",
        tenant_id="acme",
        scopes=frozenset({Action.SUBMIT, Action.READ, Action.READ_TYPES}),
        job_types=frozenset({"mail"}),
    ),
    "mail-viewer": Principal(
        id="key:mail-viewer",
        tenant_id="acme",
        roles=frozenset({Role.VIEWER}),
        job_types=frozenset({"mail"}),
    ),
    "submitter": Principal(id="key:submitter", tenant_id="acme", scopes=frozenset({Action.SUBMIT})),
    "canceller": Principal(
        id="key:canceller",
        tenant_id="acme",
        roles=frozenset({Role.OPERATOR}),
        scopes=frozenset({Action.CANCEL}),
    ),
    "eve": Principal(
        id="user:eve", tenant_id="evil", roles=frozenset({Role.ADMIN}), subjects=frozenset({"d1"})
    ),
    "system": Principal(
        id="user:system", tenant_id="default", roles=frozenset({Role.ADMIN}), is_system=True
    ),
    "system-caller": Principal(
        id="key:caller",
        tenant_id="default",
        roles=frozenset({Role.ADMIN}),
        job_types=frozenset({"call", "mail-shot"}),
        is_system=True,
    ),
}


class ByName:
    """Authorization: Bearer <one of PRINCIPALS>."""

    challenge = 'Bearer realm="test"'

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        name = credentials.bearer
        if name is None:
            return None
        if name not in PRINCIPALS:
            raise InvalidCredentials("The key is not known.")
        return PRINCIPALS[name]


class AuditKept:
    """Keeps what was audited, for tests to look at."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    def outcomes(self) -> list[tuple[str, str, str]]:
        return [(entry.actor, entry.action, entry.outcome) for entry in self.entries]
