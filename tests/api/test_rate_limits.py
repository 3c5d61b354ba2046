"""Rate limits: shared by all processes, cheap to ask, told by headers, and sane without a store."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantline import Gantline
from gantline.api import ApiSettings
from gantline.api.rate_limiter import NAMESPACE, LeasedBucket, RateLimiter, SharedBucket
from gantline.api.rate_limits import RateLimits
from gantline.auth.authenticator import Credentials
from gantline.auth.principal import Principal
from gantline.auth.rate_limit import RateLimit, read_rate_limit
from gantline.contract.errors import InvalidInput, StoreUnavailable
from gantline.contract.records import RecordWrite
from gantline.contract.results import Conflict
from gantline.contract.store import JobStore
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.faults import Call, intercepted, losing_answers
from tests.api.application import PRINCIPALS, ByName, make_jobs
from tests.api.conftest import Asker, asker_of
from tests.api.test_submit import DOCUMENT

FIVE = RateLimit(1.0, 5)
STATS = ("GET", "/api/stats")


def limited(jobs: Gantline, **limits: Any) -> asker_of:
    api = jobs.api(authenticator=ByName(), settings=ApiSettings(rate_limits=RateLimits(**limits)))
    return asker_of(api)


async def statuses(ask: Asker, who: str, times: int) -> list[int]:
    return [(await ask(who, *STATS)).status_code for _ in range(times)]


def quota(response: httpx2.Response) -> tuple[int, int, int]:
    names = ("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset")
    limit, remaining, reset = (int(response.headers[name]) for name in names)
    return limit, remaining, reset


class Watched:
    """A store that counts its calls, and fails when told to."""

    def __init__(self, store: JobStore) -> None:
        self.calls: Counter[str] = Counter()
        self.is_broken = False
        self.hangs: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.store = intercepted(store, self._around)

    async def _around(self, verb: str, call: Call) -> Any:
        self.calls[verb] += 1
        self.asked.set()
        if self.hangs is not None:
            await self.hangs.wait()
        if self.is_broken:
            raise StoreUnavailable("it is gone")
        return await call()


# -- through the API ------------------------------------------------------------------------------


async def test_the_limits_of_a_process_are_there_by_default_and_ask_no_store(
    ask: Asker, jobs: Gantline
) -> None:
    response = await ask("operator", *STATS)
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("ratelimit")]
    assert await jobs.store.read_records(NAMESPACE) == []
    defaults = RateLimits()
    assert defaults.per_key_here is not None
    assert defaults.per_tenant_here is not None
    assert defaults.per_tenant_here.burst > defaults.per_key_here.burst >= 1000


async def test_the_limits_of_a_process_hold_per_key_and_per_tenant(
    jobs: Gantline, clock: FakeClock
) -> None:
    limits = {"per_key_here": RateLimit(1.0, 2), "per_tenant_here": RateLimit(1.0, 3)}
    async with limited(jobs, **limits) as ask:
        assert await statuses(ask, "operator", 3) == [200, 200, 429]
        assert await statuses(ask, "admin", 2) == [200, 429], "their tenant had one left"
        assert await statuses(ask, "eve", 2) == [200, 200], "another tenant has its own"
        denied = await ask("operator", *STATS)
        assert (denied.json()["errorCode"], quota(denied)) == ("RATE_LIMITED", (2, 0, 2))
        clock.advance(1)
        assert await statuses(ask, "admin", 2) == [200, 429]
    assert await jobs.store.read_records(NAMESPACE) == []


async def test_a_limit_that_is_named_is_in_place_of_that_of_a_process(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE, per_key_here=RateLimit(1.0, 1)) as ask:
        assert await statuses(ask, "operator", 6) == [200] * 5 + [429]
    async with limited(jobs, per_key_here=None, per_tenant_here=None) as ask:
        assert set(await statuses(ask, "operator", 50)) == {200}


async def test_who_asks_too_often_is_told_when_to_come_again(
    jobs: Gantline, clock: FakeClock
) -> None:
    async with limited(jobs, per_key=FIVE) as ask:
        first = await ask("operator", *STATS)
        assert quota(first) == (5, 4, 1)
        assert await statuses(ask, "operator", 4) == [200] * 4
        denied = await ask("operator", *STATS)
        assert denied.status_code == 429
        assert denied.json()["errorCode"] == "RATE_LIMITED"
        assert denied.headers["retry-after"] == "1"
        assert quota(denied) == (5, 0, 5)
        clock.advance(1)
        assert await statuses(ask, "operator", 2) == [200, 429]
        clock.advance(100)
        assert await statuses(ask, "operator", 6) == [200] * 5 + [429]


async def test_a_limit_of_less_than_one_a_second_says_how_long(
    jobs: Gantline, clock: FakeClock
) -> None:
    async with limited(jobs, per_key=RateLimit(1 / 60, 1)) as ask:
        assert await statuses(ask, "operator", 1) == [200]
        assert (await ask("operator", *STATS)).headers["retry-after"] == "60"
        clock.advance(50)
        assert (await ask("operator", *STATS)).headers["retry-after"] == "10"
        clock.advance(10)
        assert await statuses(ask, "operator", 2) == [200, 429]


async def test_every_key_has_its_own_bucket(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE) as ask:
        assert await statuses(ask, "operator", 6) == [200] * 5 + [429]
        assert await statuses(ask, "admin", 6) == [200] * 5 + [429]


async def test_the_same_name_in_another_tenant_is_somebody_else(jobs: Gantline) -> None:
    class Namesakes(ByName):
        async def authenticate(self, credentials: Credentials) -> Principal | None:
            principal = await super().authenticate(credentials)
            return principal and msgspec.structs.replace(principal, id="user:1")

    settings = ApiSettings(rate_limits=RateLimits(per_key=FIVE))
    async with asker_of(jobs.api(authenticator=Namesakes(), settings=settings)) as ask:
        assert await statuses(ask, "operator", 6) == [200] * 5 + [429]
        assert await statuses(ask, "eve", 6) == [200] * 5 + [429]


async def test_the_keys_of_a_tenant_share_its_bucket(jobs: Gantline) -> None:
    async with limited(jobs, per_tenant=FIVE) as ask:
        assert await statuses(ask, "operator", 3) == [200] * 3
        assert await statuses(ask, "admin", 3) == [200, 200, 429]
        assert (await ask("admin", *STATS)).json()["detail"].startswith("The limit of this tenant")
        assert await statuses(ask, "eve", 1) == [200]


async def test_a_tenant_may_have_a_limit_of_its_own(jobs: Gantline) -> None:
    limits = {"per_tenant": FIVE, "tenants": {"evil": RateLimit(1.0, 1)}}
    async with limited(jobs, **limits) as ask:
        assert await statuses(ask, "eve", 2) == [200, 429]
        assert await statuses(ask, "operator", 2) == [200, 200]


class WithLimit(ByName):
    async def authenticate(self, credentials: Credentials) -> Principal | None:
        principal = await super().authenticate(credentials)
        if principal is None or principal.id != "user:operator":
            return principal
        return msgspec.structs.replace(principal, rate_limit=RateLimit(1.0, 2))


async def test_the_limit_of_a_key_itself_counts_before_that_of_all(jobs: Gantline) -> None:
    for limits in (RateLimits(), RateLimits(per_key=FIVE)):
        api = jobs.api(authenticator=WithLimit(), settings=ApiSettings(rate_limits=limits))
        async with asker_of(api) as ask:
            assert await statuses(ask, "operator", 3) == [200, 200, 429]
            assert await statuses(ask, "admin", 3) == [200] * 3
        for record in await jobs.store.read_records(NAMESPACE):
            await jobs.store.write_records([RecordWrite(NAMESPACE, record.key, None)])


async def test_the_headers_tell_of_the_bucket_of_which_less_is_left(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE, per_tenant=RateLimit(1.0, 100)) as ask:
        assert quota(await ask("operator", *STATS))[0] == 5
    async with limited(jobs, per_key=RateLimit(1.0, 1000), per_tenant=RateLimit(1.0, 7)) as ask:
        assert quota(await ask("admin", *STATS))[0] == 7


async def test_problems_tell_the_quota_too(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE) as ask:
        missing = await ask("operator", "GET", "/api/jobs/x")
        assert (missing.status_code, quota(missing)[1]) == (400, 4)
        forbidden = await ask("alice", *STATS)
        assert (forbidden.status_code, quota(forbidden)[1]) == (403, 4)


async def test_what_a_tenant_is_denied_does_not_cost_its_key(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE, per_tenant=RateLimit(1 / 3600, 1)) as ask:
        assert await statuses(ask, "operator", 10) == [200] + [429] * 9
    async with limited(jobs, per_key=FIVE) as ask:
        # Four of the key's five tokens are left; one was leased by the process before.
        assert (await statuses(ask, "operator", 10)).count(200) >= 3


async def test_a_denied_request_is_not_even_read(jobs: Gantline) -> None:
    async with limited(jobs, per_key=RateLimit(1.0, 1)) as ask:
        assert await statuses(ask, "operator", 1) == [200]
        for content in (b"{", b"x" * 5_000_000, b"[" * 100_000):
            response = await ask("operator", "POST", "/api/jobs", content=content)
            assert response.status_code == 429
        response = await ask("operator", "GET", "/api/jobs?nonsense=1")
        assert response.status_code == 429


async def test_who_is_not_known_has_no_bucket(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE, per_tenant=FIVE) as ask:
        response = await ask("mallory", *STATS)
        assert response.status_code == 401
        assert "ratelimit-limit" not in response.headers
        assert (await ask(None, "GET", "/api/openapi.json")).status_code == 200
    assert await jobs.store.read_records(NAMESPACE) == []


async def test_two_apis_on_one_store_share_a_limit(jobs: Gantline) -> None:
    limits = {"per_tenant": RateLimit(1.0, 40)}
    async with limited(jobs, **limits) as one, limited(jobs, **limits) as two:
        answers = [
            (await ask("operator", *STATS)).status_code for _ in range(60) for ask in (one, two)
        ]
    assert answers.count(200) == 40


async def test_a_submit_counts_like_any_request(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE) as ask:
        codes = [(await ask("alice", "POST", "/api/jobs", DOCUMENT)).status_code for _ in range(6)]
    assert codes == [202] * 5 + [429]


async def test_a_stream_tells_the_quota_and_goes_on(jobs: Gantline) -> None:
    async with limited(jobs, per_key=FIVE) as ask:
        accepted = (await ask("alice", "POST", "/api/jobs", DOCUMENT)).json()
        await ask("alice", "POST", f"/api/jobs/{accepted['jobId']}/cancel")
        response = await ask("alice", "GET", f"/api/jobs/{accepted['jobId']}/events")
        assert (response.status_code, quota(response)[1]) == (200, 2)
        assert '"status":"Cancelled"' in response.text


# -- the store ------------------------------------------------------------------------------------


async def test_few_requests_ask_the_store(clock: FakeClock) -> None:
    watched = Watched(MemoryStore(clock=clock))
    async with (
        make_jobs(watched.store, clock) as jobs,
        limited(jobs, per_key=RateLimit(1000.0, 1000)) as ask,
    ):
        watched.calls.clear()
        answers = [await ask("operator", "GET", "/api/job-types") for _ in range(1100)]
    codes = Counter(answer.status_code for answer in answers)
    assert codes == {200: 1000, 429: 100}
    # Four blocks; then once to hear that there is nothing left.
    assert watched.calls["write_records"] == 4
    assert watched.calls["ping"] == 5


async def test_who_is_denied_again_and_again_asks_the_store_seldom(clock: FakeClock) -> None:
    watched = Watched(MemoryStore(clock=clock))
    bucket = bucket_on(watched.store, RateLimit(1000.0, 4), clock)
    for _ in range(4):
        assert (await bucket.take()).is_admitted
    watched.calls.clear()
    for _ in range(10_000):
        assert not (await bucket.take()).is_admitted
    assert watched.calls["ping"] == 1


def bucket_on(
    store: JobStore, limit: RateLimit, clock: FakeClock, share: float = 0.5
) -> LeasedBucket:
    shared = SharedBucket(lambda: store, "somebody", limit)
    return LeasedBucket(shared, limit, share=share, clock=clock)


async def admitted(bucket: LeasedBucket, times: int) -> int:
    return sum([(await bucket.take()).is_admitted for _ in range(times)])


async def test_a_store_that_is_gone_neither_opens_the_limit_nor_closes_it(
    clock: FakeClock,
) -> None:
    watched = Watched(MemoryStore(clock=clock))
    bucket = bucket_on(watched.store, RateLimit(10.0, 20), clock, share=0.25)
    watched.is_broken = True
    assert await admitted(bucket, 100) == 5
    assert watched.calls.total() == 1
    clock.advance(1)
    # What 0.25 of the limit brings in a second; and the store is asked once more.
    assert await admitted(bucket, 100) == 2
    assert watched.calls.total() == 2
    watched.is_broken = False
    clock.advance(1)
    assert await admitted(bucket, 100) == 20


async def test_a_small_limit_is_not_closed_by_a_broken_store(clock: FakeClock) -> None:
    watched = Watched(MemoryStore(clock=clock))
    watched.is_broken = True
    bucket = bucket_on(watched.store, RateLimit(1.0, 1), clock, share=0.1)
    verdicts = [await bucket.take() for _ in range(2)]
    assert [one.is_admitted for one in verdicts] == [True, False]
    assert verdicts[1].retry_after_seconds == pytest.approx(10)
    clock.advance(10)
    assert await admitted(bucket, 5) == 1


async def test_a_store_that_hangs_holds_nobody_for_long(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.api.rate_limiter._ASK_SECONDS", 0.01)
    watched = Watched(MemoryStore(clock=clock))
    watched.hangs = asyncio.Event()
    bucket = bucket_on(watched.store, RateLimit(10.0, 20), clock)
    verdicts = await asyncio.gather(*(bucket.take() for _ in range(100)))
    assert sum(one.is_admitted for one in verdicts) == 10
    assert watched.calls.total() == 1


async def test_who_always_comes_second_grants_his_share(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)

    async def around(verb: str, call: Call) -> Any:
        return [Conflict(None)] if verb == "write_records" else await call()

    bucket = bucket_on(intercepted(store, around), RateLimit(10.0, 20), clock)
    assert await admitted(bucket, 100) == 10


async def test_a_lost_answer_gives_nothing_away(clock: FakeClock) -> None:
    store = losing_answers(MemoryStore(clock=clock))
    first, second = (bucket_on(store, RateLimit(1.0, 20), clock) for _ in range(2))
    assert await admitted(first, 50) + await admitted(second, 50) == 20


async def test_two_that_write_the_same_are_not_both_believed(clock: FakeClock) -> None:
    """Both read the full bucket, then both write; a record that is equal counts as written."""
    store = MemoryStore(clock=clock)
    both_have_read = asyncio.Barrier(2)
    reads: Counter[object] = Counter()

    def racing(who: str) -> JobStore:
        async def around(verb: str, call: Call) -> Any:
            answer = await call()
            if verb == "read_records" and reads[who] == 0:
                reads[who] += 1
                await both_have_read.wait()
            return answer

        return intercepted(store, around)

    buckets = [bucket_on(racing(who), RateLimit(1.0, 4), clock) for who in "ab"]
    await asyncio.gather(*(bucket.take() for bucket in buckets))
    assert 2 + sum([await admitted(bucket, 10) for bucket in buckets]) == 4


async def test_a_record_that_cannot_be_read_is_written_anew(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    await admitted(bucket_on(store, FIVE, clock), 1)
    (record,) = await store.read_records(NAMESPACE)
    await store.write_records([RecordWrite(NAMESPACE, record.key, b"\xff")])
    assert await admitted(bucket_on(store, FIVE, clock), 10) == 5


async def test_a_clock_that_was_set_back_does_not_close_a_limit(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    assert await admitted(bucket_on(store, FIVE, clock), 10) == 5
    clock.shift(-timedelta(days=1))
    assert await SharedBucket(lambda: store, "somebody", FIVE).take(3) == (0, 0, 1)
    bucket = bucket_on(store, FIVE, clock)
    assert await admitted(bucket, 10) == 0
    clock.advance(5)
    assert await admitted(bucket, 10) == 5


async def test_a_bucket_that_is_full_again_is_forgotten(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    await admitted(bucket_on(store, FIVE, clock), 5)
    assert len(await store.read_records(NAMESPACE)) == 1
    clock.advance(66)
    assert await store.read_records(NAMESPACE) == []


async def test_what_is_not_used_goes_back(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    limit = RateLimit(1 / 3600, 40)
    shared = SharedBucket(lambda: store, "somebody", limit)
    assert await shared.take(30) == (30, 10, 0.0)
    assert await shared.take(40, unused=30) == (40, 0, 0.0)
    assert await shared.take(3, unused=9) == (3, 6, 0.0)
    assert await shared.take(7) == (6, 0, 0.0)
    assert await shared.take(1) == (0, 0, 3600)


async def test_who_holds_tokens_for_long_gives_them_back_first(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    limit = RateLimit(1 / 3600, 40)
    idle, busy = bucket_on(store, limit, clock), bucket_on(store, limit, clock)
    assert await admitted(idle, 4) == 4  # out of blocks of 1, 2 and 4: it holds three more
    assert await admitted(busy, 100) == 33
    clock.advance(11)
    assert await admitted(idle, 1) == 1  # gives three back, and leases two
    assert await admitted(busy, 100) == 1
    assert await admitted(idle, 100) == 1


async def test_many_at_once_get_no_more_than_there_is(clock: FakeClock) -> None:
    store = MemoryStore(clock=clock)
    buckets = [bucket_on(store, RateLimit(1.0, 50), clock) for _ in range(4)]
    verdicts = await asyncio.gather(*(bucket.take() for bucket in buckets for _ in range(100)))
    assert sum(one.is_admitted for one in verdicts) == 50


async def test_who_gives_up_while_asking_stops_nobody(clock: FakeClock) -> None:
    watched = Watched(MemoryStore(clock=clock))
    watched.hangs = asyncio.Event()
    bucket = bucket_on(watched.store, FIVE, clock)
    first = asyncio.create_task(bucket.take())
    second = asyncio.create_task(bucket.take())
    await watched.asked.wait()
    first.cancel()
    watched.hangs.set()
    assert (await second).is_admitted


steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 60), st.sampled_from([0.0, 0.05, 0.4, 3.0, 12.0])),
    max_size=40,
)


@given(
    steps=steps,
    per_second=st.sampled_from([0.2, 1.0, 7.0, 100.0]),
    burst=st.integers(1, 60),
)
@settings(max_examples=150, deadline=None)
def test_a_fleet_never_admits_more_than_the_bucket_ever_held(
    steps: list[tuple[int, int, float]], per_second: float, burst: int
) -> None:
    async def play() -> None:
        clock = FakeClock()
        store = MemoryStore(clock=clock)
        limit = RateLimit(per_second, burst)
        fleet = [bucket_on(store, limit, clock) for _ in range(4)]
        passed, count = 0.0, 0
        for who, times, pause in steps:
            clock.advance(pause)
            passed += pause
            count += await admitted(fleet[who], times)
            assert count <= burst + passed * per_second + 1e-6
        clock.advance(20 + burst / per_second)
        # And whoever comes to a full bucket gets all of it.
        assert await admitted(fleet[0], burst) == burst

    asyncio.run(play())


@pytest.fixture(params=["sqlite", "postgresql"])
def real_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Gantline]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/gantline.db"
    else:
        server = request.getfixturevalue("postgres")
        url = server.url(schema="rate_limits")
    return lambda: make_jobs(url)


async def test_processes_on_a_real_store_share_a_limit(
    real_store: Callable[[], Gantline],
) -> None:
    limit = RateLimit(1 / 86_400, 200)
    async with real_store() as one, real_store() as two:
        buckets = [
            LeasedBucket(
                SharedBucket(lambda app=app: app.store, "all", limit),  # type: ignore[misc]  # bound now
                limit,
                share=0.5,
                clock=app.clock,
            )
            for app in (one, two)
        ]

        async def ask(bucket: LeasedBucket) -> int:
            return await admitted(bucket, 300)

        counts = await asyncio.gather(*(ask(bucket) for bucket in buckets for _ in range(3)))
    assert sum(counts) == 200


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("50/s", RateLimit(50.0, 100)),
        ("600/min", RateLimit(10.0, 20)),
        ("600/min:100", RateLimit(10.0, 100)),
        ("36/h", RateLimit(0.01, 1)),
        (" 0.5/s:3 ", RateLimit(0.5, 3)),
    ],
)
def test_a_limit_is_read(text: str, limit: RateLimit) -> None:
    assert read_rate_limit(text) == limit


@pytest.mark.parametrize(
    "text",
    ["", "50", "0/s", "-1/s", "1/day", "1/s:0", "999999999/s", "1/s:9999999", "nan/s", "1e9/s"],
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a rate limit"):
        read_rate_limit(text)


@pytest.mark.parametrize("share", [0, -1, 1.1, float("nan")])
def test_a_share_is_more_than_nothing_and_not_more_than_all(share: float) -> None:
    with pytest.raises(InvalidInput):
        RateLimits(share_without_store=share)


def _counting(admit: Any, kept: list[int]) -> Any:
    async def counted(self: RateLimiter, call: Any) -> None:
        await admit(self, call)
        kept.append(len(self._buckets))

    return counted


async def test_buckets_of_many_are_not_all_kept(
    jobs: Gantline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantline.api.rate_limiter._MOST_BUCKETS", 2)
    kept: list[int] = []
    monkeypatch.setattr(RateLimiter, "admit", _counting(RateLimiter.admit, kept))
    async with limited(jobs, per_key=RateLimit(1.0, 2)) as ask:
        for who in PRINCIPALS:
            assert (await ask(who, "GET", "/api/job-types")).status_code in (200, 403)
        assert max(kept) == 2
        # Forgotten here, it is still known to the store.
        assert (await statuses(ask, "operator", 3)).count(200) == 1
