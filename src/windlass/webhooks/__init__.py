"""Webhooks: outcomes of jobs, told to others over HTTP, signed, and tried until they are taken."""

from windlass.contract.errors import WebhookNotVerified
from windlass.webhooks.verify import Verified, verify, verify_plain

__all__ = ["Verified", "WebhookNotVerified", "verify", "verify_plain"]
