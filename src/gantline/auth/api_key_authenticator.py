"""Authentication by API key."""

import hmac
import logging
import secrets
from datetime import datetime
from typing import Final

from gantline.auth.api_key import (
    KIND,
    PREFIX,
    KeyState,
    KeyText,
    StoredApiKey,
    StoredSecret,
    read_key_text,
)
from gantline.auth.api_keys import REFUSE_AGE_SECONDS, ApiKeys, compute_mac
from gantline.auth.authenticator import Credentials
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Principal
from gantline.contract.errors import InvalidCredentials

_log = logging.getLogger("gantline.auth")

HEADER: Final = "x-api-key"
_SECRETS_CHECKED: Final = 2


class ApiKeyAuthenticator:
    """Knows keys sent as `Authorization: Bearer gl_…` or as `X-API-Key: gl_…`.

    For a key that is unknown, revoked or wrong the same is read and computed as for a valid one.
    Only a caller with the right secret learns more than that the key is not valid.
    """

    challenge = 'Bearer realm="gantline"'

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys
        self._decoy = StoredSecret(keys.peppers.current, secrets.token_bytes(32))

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        sent = _find_keys(credentials)
        if not sent:
            return None
        if len(sent) > 1:
            raise InvalidCredentials("Two API keys were sent.", next_step="Send one.")
        text = read_key_text(sent.pop())
        try:
            checked = await self._check_with_cache(text)
        except InvalidCredentials as error:
            _log.warning("key %s was refused: %s", text.key_id, error.internal)
            raise
        await self._keys.note_use(text.key_id)
        return checked.grant.principal(text.key_id)

    async def _check_with_cache(self, text: KeyText) -> StoredApiKey:
        """Accept a key by the cache, but refuse none before it was read again."""
        cached = await self._keys.lookup(text.key_id)
        try:
            return self._check(text, cached)
        except InvalidCredentials:
            fresh = await self._keys.lookup(text.key_id, max_age_seconds=REFUSE_AGE_SECONDS)
            if fresh is cached:
                raise
            return self._check(text, fresh)

    async def is_revoked(self, principal: Principal) -> bool:
        kind, _, key_id = principal.id.partition(":")
        if kind != KIND:
            return False
        stored = await self._keys.lookup(key_id)
        return stored is None or stored.state(self._keys.clock.now()) is not KeyState.ACTIVE

    def _check(self, text: KeyText, stored: StoredApiKey | None) -> StoredApiKey:
        now = self._keys.clock.now()
        has_secret = self._has_secret(text, stored.secrets if stored else (), now)
        if stored is None or not has_secret:
            why = "unknown id" if stored is None else f"{stored.state(now)}, not its secret"
            raise InvalidCredentials(
                "The API key is not valid.", next_step="Ask for a new one.", internal=why
            )
        if (state := stored.state(now)) is not KeyState.ACTIVE:
            raise InvalidCredentials(
                f"The API key is {state}.", next_step="Ask for a new one.", internal=state
            )
        return stored

    def _has_secret(self, text: KeyText, known: tuple[StoredSecret, ...], now: datetime) -> bool:
        """Compare with two secrets always, so that the time taken reveals nothing."""
        padded = (*known, *(self._decoy for _ in range(_SECRETS_CHECKED - len(known))))
        answers = [
            _matches(text, secret, self._keys.peppers)
            and (secret.until is None or secret.until > now)
            for secret in padded
        ]
        return any(answers)


def _matches(text: KeyText, secret: StoredSecret, peppers: Peppers) -> bool:
    is_known = secret.pepper_id in peppers
    if not is_known:
        _log.error("a key was made with the pepper %s, which is not set", secret.pepper_id)
    mac = compute_mac(text, peppers, secret.pepper_id if is_known else peppers.current)
    return hmac.compare_digest(mac, secret.mac) and is_known


def _find_keys(credentials: Credentials) -> set[str]:
    sent = {credentials.headers[HEADER].strip()} if HEADER in credentials.headers else set()
    bearer = credentials.bearer
    if bearer is not None and bearer.startswith(PREFIX):
        sent.add(bearer)
    return sent
