"""The key of a worker: where the installation requires one, no worker registers without it."""

import os
from collections.abc import Mapping
from typing import Final

from gantline.auth.action import Action
from gantline.auth.api_key_authenticator import HEADER, ApiKeyAuthenticator
from gantline.auth.api_keys import ApiKeys
from gantline.auth.authenticator import Credentials
from gantline.auth.peppers import Peppers
from gantline.contract.clock import Clock
from gantline.contract.errors import AuthMisconfigured, Forbidden, NotAuthenticated
from gantline.contract.records import RecordWrite
from gantline.contract.store import JobStore

WORKER_KEY_VARIABLE: Final = "GANTLINE_WORKER_KEY"
_NAMESPACE: Final = "worker-key"
_REQUIRED: Final = "required"
_MAKE: Final = f"An operator makes one: gantline key create NAME --system --scope {Action.RUN}"


async def require_worker_key(store: JobStore, *, required: bool) -> None:
    """Let only workers with a key run jobs of this store, or any worker."""
    value = b"true" if required else None
    await store.write_records([RecordWrite(_NAMESPACE, _REQUIRED, value)])


async def is_worker_key_required(store: JobStore) -> bool:
    return bool(await store.read_records(_NAMESPACE, prefix=_REQUIRED, limit=1))


class WorkerKey:
    """Checks the key of the workers of this process, before each registration.

    The keys are API keys of the whole installation that have the right `workers:run` by name: no
    role gives it.
    """

    def __init__(
        self, store: JobStore, *, clock: Clock, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._store = store
        self._clock = clock
        self._environment = environment

    async def check(self) -> str:
        """Return the id of the key, empty where none is required; raise Forbidden."""
        if not await is_worker_key_required(self._store):
            return ""
        text = self._environment.get(WORKER_KEY_VARIABLE, "").strip()
        if not text:
            raise Forbidden(
                f"Workers need a key here, and {WORKER_KEY_VARIABLE} is not set.",
                next_step=_MAKE,
            )
        try:
            peppers = Peppers.from_environment(self._environment)
            keys = ApiKeys(self._store, peppers, clock=self._clock)
            credentials = Credentials(headers={HEADER: text})
            principal = await ApiKeyAuthenticator(keys).authenticate(credentials)
        except (NotAuthenticated, AuthMisconfigured) as error:
            raise Forbidden(
                f"The key of this worker, {WORKER_KEY_VARIABLE}, is not accepted: {error.cause}",
                next_step=error.next_step,
            ) from None
        scopes = principal.scopes if principal is not None and principal.is_system else None
        if principal is None or scopes is None or Action.RUN not in scopes:
            raise Forbidden(
                f"The key of this worker, {WORKER_KEY_VARIABLE}, lacks the right {Action.RUN}.",
                next_step=_MAKE,
            )
        return principal.id.partition(":")[2]
