"""Webhooks: outcomes of jobs, told to others over HTTP, signed, and tried until they are taken."""

from typing import TYPE_CHECKING

from windlass.contract.errors import WebhookNotVerified
from windlass.contract.face import face
from windlass.webhooks.verify import Verified, verify, verify_plain

if TYPE_CHECKING:
    from windlass.webhooks.addresses import read_networks
    from windlass.webhooks.settings import WebhookSettings
    from windlass.webhooks.vault import Vault
else:
    __getattr__ = face(
        __name__,
        {
            "addresses": ("read_networks",),
            "settings": ("WebhookSettings",),
            "vault": ("Vault",),
        },
    )

__all__ = [
    "Vault",
    "Verified",
    "WebhookNotVerified",
    "WebhookSettings",
    "read_networks",
    "verify",
    "verify_plain",
]
