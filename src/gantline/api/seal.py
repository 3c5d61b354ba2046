"""The seal: what the store numbers for all tenants together, as one tenant may hold it.

From two plain numbers a tenant could learn how much others did in between.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from gantline.api.port import Jobs
from gantline.contract.store import JobStore
from gantline.manager.records import made_once
from gantline.runtime import random_bytes

NO_NUMBER: Final = -1
_NAMESPACE: Final = "api-seal"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_NUMBER_BYTES: Final = 8
_MAC_BYTES: Final = 12
_ALL_BYTES: Final = _NONCE_BYTES + _NUMBER_BYTES + _MAC_BYTES


class Seal:
    """Seals numbers for a tenant. Only a holder of the key can open one, or make one."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def number(self, number: int, tenant_id: str) -> str:
        """Seal a number; each time anew, so that not even the same one is known again."""
        nonce = random_bytes(_NONCE_BYTES)
        hidden = self._mask(number.to_bytes(_NUMBER_BYTES, "big"), nonce)
        sealed = nonce + hidden + self._mac(b"number", tenant_id, nonce + hidden)
        return urlsafe_b64encode(sealed).decode().rstrip("=")

    def open_number(self, text: str, tenant_id: str) -> int:
        """The number that was sealed for this tenant; NO_NUMBER for anything else."""
        try:
            sealed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except ValueError:
            return NO_NUMBER
        if len(sealed) != _ALL_BYTES:
            return NO_NUMBER
        nonce, hidden = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:-_MAC_BYTES]
        expected = self._mac(b"number", tenant_id, nonce + hidden)
        if not hmac.compare_digest(sealed[-_MAC_BYTES:], expected):
            return NO_NUMBER
        return int.from_bytes(self._mask(hidden, nonce), "big")

    def tag(self, number: int, tenant_id: str) -> str:
        """A text that is the same for the same number, and otherwise says nothing about it."""
        return self._mac(b"tag", tenant_id, number.to_bytes(_NUMBER_BYTES, "big")).hex()

    def _mask(self, number: bytes, nonce: bytes) -> bytes:
        mask = hmac.digest(self._key, b"mask\0" + nonce, "sha256")
        return bytes(one ^ other for one, other in zip(number, mask, strict=False))

    def _mac(self, purpose: bytes, tenant_id: str, content: bytes) -> bytes:
        # The content has one length for each purpose, so that it cannot be taken for the tenant.
        message = purpose + b"\0" + content + tenant_id.encode()
        return hmac.digest(self._key, message, "sha256")[:_MAC_BYTES]


class SealKeeper:
    """Gives the seal of the application's store.

    The key is in the store and not in the environment: every process that serves the same jobs has
    it, without a setting. Whoever reads the store sees all events anyway.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._known: tuple[JobStore, Seal] | None = None

    async def seal(self) -> Seal:
        store = self._jobs.store
        if self._known is None or self._known[0] is not store:
            self._known = (store, await read_seal(store))
        return self._known[1]


async def read_seal(store: JobStore) -> Seal:
    """Read the key of a store; who asks first makes it."""
    return Seal(await made_once(store, _NAMESPACE, random_bytes(_KEY_BYTES)))
