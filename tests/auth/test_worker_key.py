"""Where the installation requires it, only a worker with a valid key registers."""

from datetime import timedelta

import pytest

from gantline.auth.action import Action
from gantline.auth.api_key import KeyGrant
from gantline.auth.api_keys import ApiKeys
from gantline.auth.peppers import PEPPER_VARIABLE, Peppers, new_pepper
from gantline.auth.principal import Role
from gantline.auth.worker_key import (
    WORKER_KEY_VARIABLE,
    WorkerKey,
    is_worker_key_required,
    require_worker_key,
)
from gantline.contract.errors import Forbidden
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock

RUN = frozenset({Action.RUN})


class Installation:
    """A store, its pepper, and the keys of workers."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.pepper = {PEPPER_VARIABLE: new_pepper()}
        self.keys = ApiKeys(self.store, Peppers.from_environment(self.pepper), clock=self.clock)

    async def key(self, **grant: object) -> str:
        fields = {"name": "worker", "is_system": True, "scopes": RUN} | grant
        return (await self.keys.create(KeyGrant(**fields))).text  # type: ignore[arg-type]  # fields of a grant

    def worker(self, key: str | None, *, pepper: bool = True) -> WorkerKey:
        environment = dict(self.pepper) if pepper else {}
        if key is not None:
            environment[WORKER_KEY_VARIABLE] = key
        return WorkerKey(self.store, clock=self.clock, environment=environment)


@pytest.fixture
async def installation() -> Installation:
    installation = Installation()
    await require_worker_key(installation.store, required=True)
    return installation


async def test_without_the_switch_no_worker_needs_a_key() -> None:
    place = Installation()
    assert await place.worker(None, pepper=False).check() == ""
    await require_worker_key(place.store, required=True)
    await require_worker_key(place.store, required=False)
    assert not await is_worker_key_required(place.store)
    assert await place.worker(None).check() == ""


async def test_a_worker_with_a_valid_key_is_admitted_under_its_id(
    installation: Installation,
) -> None:
    key = await installation.key()
    assert await installation.worker(key).check() == key.split("_")[1]


async def test_who_has_no_key_is_told_how_one_is_made(installation: Installation) -> None:
    with pytest.raises(Forbidden, match=r"GANTLINE_WORKER_KEY is not set.*gantline key create"):
        await installation.worker(None).check()


@pytest.mark.parametrize(
    "grant",
    [
        {"scopes": None, "roles": frozenset({Role.ADMIN})},
        {"scopes": frozenset({Action.SUBMIT})},
        {"is_system": False},
    ],
    ids=["by its role alone", "another right", "of one tenant"],
)
async def test_only_a_key_of_the_installation_with_the_right_by_name_admits(
    installation: Installation, grant: dict[str, object]
) -> None:
    with pytest.raises(Forbidden, match="lacks the right workers:run"):
        await installation.worker(await installation.key(**grant)).check()


async def test_a_key_that_is_revoked_expired_or_wrong_admits_nobody(
    installation: Installation,
) -> None:
    key = await installation.key()
    worker = installation.worker(key)
    assert await worker.check()
    await installation.keys.revoke(key.split("_")[1], tenant_id=None)
    with pytest.raises(Forbidden, match="is not accepted: The API key is revoked"):
        await worker.check()
    short = await installation.keys.create(
        KeyGrant(name="short", is_system=True, scopes=RUN), lifetime=timedelta(minutes=1)
    )
    installation.clock.advance(timedelta(minutes=2))
    for text in (short.text, "no key at all", Installation.__name__):
        with pytest.raises(Forbidden, match="is not accepted"):
            await installation.worker(text).check()


async def test_a_worker_without_the_pepper_cannot_prove_its_key(installation: Installation) -> None:
    with pytest.raises(Forbidden, match="GANTLINE_KEY_PEPPER is not set"):
        await installation.worker(await installation.key(), pepper=False).check()
