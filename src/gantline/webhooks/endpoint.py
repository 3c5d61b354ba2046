"""An endpoint as it is stored: its spec, secrets and status, and the keys of its records."""

import hmac
import re
from datetime import datetime
from typing import Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from gantline.contract.domain_event import (
    ALL_DOMAIN_EVENTS,
    ALL_EVENTS,
    check_domain_type,
    includes,
)
from gantline.contract.errors import InvalidEnvelope, InvalidInput, Problem
from gantline.contract.job_event import JobEvent
from gantline.contract.text import name_problem
from gantline.contract.webhook import (
    EVENT_TYPES,
    WebhookEndpoint,
    WebhookSpec,
    WebhookStatus,
)
from gantline.webhooks.secret_encryption import SealedSecret

_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,38}[A-Za-z0-9]")
_TYPE_LIMIT: Final = 128
_EVENT_TYPES: Final = (*EVENT_TYPES, ALL_EVENTS, ALL_DOMAIN_EVENTS)
_DESCRIPTION_LIMIT: Final = 512
_VERSION_8_BITS: Final = (0x8 << 76) | (0b10 << 62)
_FREE_BITS: Final = ~((0xF << 76) | (0b11 << 62)) & (2**128 - 1)


def key_prefix(tenant_id: str) -> str:
    """Quote the tenant, so that no name can be the beginning of another one's keys."""
    return f"{quote(tenant_id, safe='')}/"


def record_key(tenant_id: str, webhook_id: UUID) -> str:
    return f"{key_prefix(tenant_id)}{webhook_id}"


class StoredEndpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An endpoint as it is stored. The newest secret comes first; there are at most two."""

    spec: WebhookSpec
    secrets: tuple[SealedSecret, ...]
    salt: bytes
    """Part of the ids of its deliveries, so that nobody can guess them."""
    status: WebhookStatus = WebhookStatus.ENABLED
    status_reason: str = ""
    status_since: datetime
    created_at: datetime
    created_by: str = ""
    updated_at: datetime
    updated_by: str = ""
    after_event: int
    """The last event that was numbered before it was created. A clock may be set back, and numbers
    are not."""

    @property
    def is_enabled(self) -> bool:
        return self.status is WebhookStatus.ENABLED

    def subscribes_to(self, event: JobEvent) -> bool:
        """Whether to deliver an event: of a chosen type, and after the endpoint was created."""
        spec = self.spec
        return (
            self.is_enabled
            and event.sequence > self.after_event
            and includes(spec.event_types, event.type)
            and (not spec.job_types or event.job.job_type in spec.job_types)
        )

    def is_same(self, seen: "StoredEndpoint") -> bool:
        """Whether it has the same URL, and was neither enabled nor disabled since."""
        return self.spec.url == seen.spec.url and self.status_since == seen.status_since

    def delivery_id(self, event_id: str) -> UUID:
        """Compute the id of a delivery: always the same for an event. A UUIDv8 (RFC 9562)."""
        digest = hmac.digest(self.salt, event_id.encode(), "sha256")[:16]
        return UUID(int=int.from_bytes(digest, "big") & _FREE_BITS | _VERSION_8_BITS)

    def valid_secrets(self, now: datetime) -> list[SealedSecret]:
        """Return the secrets that sign now, the newest first."""
        return [one for one in self.secrets if one.until is None or one.until > now]

    def describe(
        self,
        webhook_id: UUID,
        tenant_id: str,
        *,
        now: datetime,
        failing_since: datetime | None = None,
    ) -> WebhookEndpoint:
        return WebhookEndpoint(
            **msgspec.structs.asdict(self.spec),
            webhook_id=webhook_id,
            tenant_id=tenant_id,
            status=self.status,
            status_reason=self.status_reason,
            status_since=self.status_since,
            failing_since=failing_since,
            created_at=self.created_at,
            created_by=self.created_by,
            updated_at=self.updated_at,
            updated_by=self.updated_by,
            old_secret_until=next((one.until for one in self.valid_secrets(now)[1:]), None),
        )


def check_spec(spec: WebhookSpec) -> None:
    """Raise InvalidEnvelope for what types cannot express; the URL is checked by the guard."""
    problems = []
    if not spec.event_types or not all(map(_is_event_type, spec.event_types)):
        known = ", ".join(_EVENT_TYPES)
        must = f"must be some of {known}, and types of domain events, such as ORDER_SHIPPED"
        problems.append(Problem("#/eventTypes", must))
    if detail := name_problem(spec.description, _DESCRIPTION_LIMIT):
        problems.append(Problem("#/description", detail))
    details = {
        "is empty" if not name else name_problem(name, _TYPE_LIMIT) for name in spec.job_types
    }
    problems += [Problem("#/jobTypes", detail) for detail in sorted(filter(None, details))]
    prefix = spec.header_prefix
    if not _PREFIX.fullmatch(prefix) or prefix.lower() == "webhook":
        detail = "must be letters, digits and hyphens, such as X-Gantline, and not Webhook"
        problems.append(Problem("#/headerPrefix", detail))
    if problems:
        raise InvalidEnvelope(problems)


def _is_event_type(name: str) -> bool:
    if name in _EVENT_TYPES:
        return True
    try:
        check_domain_type(name)
    except InvalidInput:
        return False
    return True
