"""Authentication by API key."""

import hmac
import logging
import secrets
from datetime import datetime
from typing import Final

from gantline.auth.api_key import KIND, KeyState, StoredKey, StoredSecret
from gantline.auth.api_keys import ApiKeys, mac_of
from gantline.auth.authenticator import Credentials
from gantline.auth.key_cache import REFUSE_AGE_SECONDS
from gantline.auth.key_text import PREFIX, KeyText, read_key_text
from gantline.auth.peppers import Peppers
from gantline.auth.principal import Principal
from gantline.contract.errors import InvalidCredentials

_log = logging.getLogger("gantline.auth")

HEADER: Final = "x-api-key"
_SECRETS_CHECKED: Final = 2


class ApiKeyAuthenticator:
    """Knows keys sent as `Authorization: Bearer gl_…` or as `X-API-Key: gl_…`.

    For a key that is unknown, revoked or wrong the same is read and computed as for a good one.
    Only who has the secret is told more than that the key is not valid.
    """

    challenge = 'Bearer realm="gantline"'

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys
        self._decoy = StoredSecret(keys.peppers.current, secrets.token_bytes(32))

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        sent = _keys_in(credentials)
        if not sent:
            return None
        if len(sent) > 1:
            raise InvalidCredentials("Two API keys were sent.", next_step="Send one.")
        text = read_key_text(sent.pop())
        try:
            checked = await self._known_to_be_good(text)
        except InvalidCredentials as error:
            _log.warning("key %s was refused: %s", text.key_id, error.internal)
            raise
        await self._keys.note_use(text.key_id)
        return checked.grant.principal(text.key_id)

    async def _known_to_be_good(self, text: KeyText) -> StoredKey:
        """From memory, if it is good; but none is refused by what may have changed since."""
        remembered = await self._keys.lookup(text.key_id)
        try:
            return self._checked(text, remembered)
        except InvalidCredentials:
            fresh = await self._keys.lookup(text.key_id, max_age_seconds=REFUSE_AGE_SECONDS)
            if fresh is remembered:
                raise
            return self._checked(text, fresh)

    async def is_revoked(self, principal: Principal) -> bool:
        kind, _, key_id = principal.id.partition(":")
        if kind != KIND:
            return False
        stored = await self._keys.lookup(key_id)
        return stored is None or stored.state(self._keys.clock.now()) is not KeyState.ACTIVE

    def _checked(self, text: KeyText, stored: StoredKey | None) -> StoredKey:
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
        """Compare with two secrets, whatever there is to compare with."""
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
    mac = mac_of(text, peppers, secret.pepper_id if is_known else peppers.current)
    return hmac.compare_digest(mac, secret.mac) and is_known


def _keys_in(credentials: Credentials) -> set[str]:
    sent = {credentials.headers[HEADER].strip()} if HEADER in credentials.headers else set()
    bearer = credentials.bearer
    if bearer is not None and bearer.startswith(PREFIX):
        sent.add(bearer)
    return sent
