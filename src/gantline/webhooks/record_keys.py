"""How records about endpoints are named: by tenant, then by endpoint."""

from urllib.parse import quote
from uuid import UUID


def prefix_of(tenant_id: str) -> str:
    """Quoted, so that no tenant's name can begin like another one's keys."""
    return f"{quote(tenant_id, safe='')}/"


def record_key(tenant_id: str, webhook_id: UUID) -> str:
    return f"{prefix_of(tenant_id)}{webhook_id}"
