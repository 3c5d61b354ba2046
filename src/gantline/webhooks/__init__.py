"""Webhooks: outcomes of jobs, sent over HTTP, signed, and retried until they are accepted."""

from typing import TYPE_CHECKING

from gantline.contract.errors import WebhookNotVerified
from gantline.contract.webhook import BodyFormat, WebhookSpec
from gantline.importing import face
from gantline.webhooks.signing import Verified, verify, verify_plain

if TYPE_CHECKING:
    from gantline.webhooks.ip_ranges import read_networks
    from gantline.webhooks.secret_encryption import Vault
    from gantline.webhooks.settings import WebhookSettings
else:
    __getattr__ = face(
        __name__,
        {
            "ip_ranges": ("read_networks",),
            "settings": ("WebhookSettings",),
            "secret_encryption": ("Vault",),
        },
    )

__all__ = [
    "BodyFormat",
    "Vault",
    "Verified",
    "WebhookNotVerified",
    "WebhookSettings",
    "WebhookSpec",
    "read_networks",
    "verify",
    "verify_plain",
]
