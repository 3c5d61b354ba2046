"""Webhooks: outcomes of jobs, told to others over HTTP, signed, and tried until they are taken."""

from typing import TYPE_CHECKING

from gantline.contract.errors import WebhookNotVerified
from gantline.contract.face import face
from gantline.contract.webhook import BodyFormat, WebhookSpec
from gantline.webhooks.verify import Verified, verify, verify_plain

if TYPE_CHECKING:
    from gantline.webhooks.addresses import read_networks
    from gantline.webhooks.settings import WebhookSettings
    from gantline.webhooks.vault import Vault
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
