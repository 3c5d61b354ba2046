"""Webhooks of an application: on where there is a key for their secrets."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gantline.app.settings import Settings
from gantline.contract.bounds import held_as

if TYPE_CHECKING:
    from gantline.webhooks.endpoints import WebhookApp
    from gantline.webhooks.service import WebhookService
    from gantline.webhooks.settings import WebhookSettings

# Written twice, so that an application without webhooks imports nothing of them.
_KEY_VARIABLE: Final = "GANTLINE_WEBHOOK_KEY"


def webhooks_of(home: "WebhookApp", settings: "WebhookSettings | None") -> "WebhookService | None":
    """None where there are no settings, since there is no key."""
    if settings is None:
        return None
    from gantline.webhooks.service import WebhookService
    from gantline.webhooks.settings import WebhookSettings

    return WebhookService(home, held_as("webhooks", settings, WebhookSettings | None))


def webhook_settings(settings: Settings) -> "WebhookSettings | None":
    """Raise AuthMisconfigured or InvalidInput where they cannot be read."""
    if not os.environ.get(_KEY_VARIABLE, "").strip():
        return None
    from gantline.webhooks.secret_encryption import Vault
    from gantline.webhooks.settings import WebhookSettings, read_allowed, read_ports

    vault = Vault.from_environment(os.environ)
    if vault is None:
        return None
    return WebhookSettings(
        vault=vault,
        allow=read_allowed(settings["webhook_allow"]),
        ports=read_ports(settings["webhook_ports"]),
        source=settings["webhook_source"],
        disable_after=timedelta(days=settings.number("webhook_disable_days", least=0.01, most=365)),
    )
