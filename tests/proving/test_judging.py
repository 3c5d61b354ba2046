"""Faults, routes, stalls and times of recovery, without any process."""

from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.status import Event, JobStatus
from gantline.proof.call import Answered, Call, Change, StartedRun
from gantline.proving.application import POLICIES, Ear, make_application
from gantline.proving.faults import Chance, Fault, FaultLog, Health, plan_faults, read_faults
from gantline.proving.judging import find_stalls, recovery_seconds
from gantline.proving.report import Recovery
from gantline.proving.target import find_route
from gantline.stores.memory import MemoryStore

JOB, OTHER = UUID(int=1), UUID(int=2)


def _started(job_id: UUID = JOB, *, fence: int = 1, waited: float = 0.0) -> StartedRun:
    return StartedRun(
        job_id=job_id,
        tenant_id="default",
        job_type="work",
        queue="one",
        token=uuid4(),
        session="s",
        fence=fence,
        version=fence,
        attempt=1,
        max_attempts=3,
        crashes=0,
        snoozes=0,
        priority=1,
        waited_seconds=waited,
    )


def _claim(at: float, *runs: Answered, process: str = "worker-1-1") -> Call:
    return Call(number=1, verb="claim", began=at, ended=at, answers=runs, process=process)


def _ended(at: float, job_id: UUID) -> Call:
    change = Change(
        job_id=job_id,
        change_id=uuid4(),
        event=Event.COMPLETED,
        to=JobStatus.COMPLETED,
        reason="",
        attempt=1,
        crashes=0,
        snoozes=0,
        priority=1,
        by_run=True,
    )
    return Call(number=2, verb="apply", began=at, ended=at, asked=(change,), process="worker-1-1")


def test_the_same_seed_gives_the_same_faults() -> None:
    def first(seed: int, **options: Any) -> list[object]:
        return list(islice(plan_faults(seed, lease=3, **options), 500))

    assert first(5, has_proxy=True) == first(5, has_proxy=True)
    assert first(5, has_proxy=True) != first(6, has_proxy=True)
    steps = list(islice(plan_faults(5, lease=3, has_proxy=True), 500))
    assert [step.at for step in steps] == sorted(step.at for step in steps)


def test_faults_of_processes_are_the_same_with_and_without_a_proxy() -> None:
    alone = list(islice(plan_faults(1, lease=3, has_proxy=False), 100))
    kinds = {"kill", "deploy", "freeze", "long freeze"}
    assert {step.kind for step in alone} == kinds
    both = plan_faults(1, lease=3, has_proxy=True)
    assert list(islice((step for step in both if step.kind in kinds), 100)) == alone


def test_what_is_drawn_for_one_name_does_not_depend_on_others() -> None:
    assert Chance(1, "a").random() == Chance(1, "a").random() != Chance(1, "b").random()


def test_ten_minutes_have_thousands_of_faults_of_connections_and_hundreds_of_processes() -> None:
    steps = []
    for step in plan_faults(1, lease=3, has_proxy=True):
        if step.at > 600:
            break
        steps.append(step.kind)
    assert len(steps) > 2000
    assert steps.count("kill") > 100


def test_faults_are_read_back_in_the_order_of_time(tmp_path: Path) -> None:
    for name in ("b", "a"):
        log = FaultLog(tmp_path, name)
        log.add("kill", name)
        log.close()
    assert [fault.process for fault in read_faults(tmp_path)] == ["b", "a"]


@pytest.mark.parametrize("waited", [25.0, 15.0])
def test_a_due_job_that_nobody_starts_is_a_stall(waited: float) -> None:
    calls = [_claim(30.0, _started(waited=waited))]
    found = find_stalls(calls, lambda since, until: until - since, within=20)
    assert len(found) == (waited > 20)


def test_a_job_may_wait_while_others_of_its_lane_start() -> None:
    calls = [_claim(15.0, _started(OTHER)), _claim(30.0, _started(waited=25.0))]
    assert find_stalls(calls, lambda since, until: until - since, within=20) == []


def test_no_job_is_expected_to_start_while_no_worker_can_work() -> None:
    calls = [_claim(30.0, _started(waited=25.0))]
    assert find_stalls(calls, lambda since, until: (until - since) / 2, within=20) == []


def test_recovery_is_from_the_kill_to_the_next_start_of_what_had_not_ended() -> None:
    calls = [
        _claim(1.0, _started(JOB), _started(OTHER)),
        _ended(2.0, OTHER),
        _claim(7.5, _started(JOB, fence=2), process="worker-2-1"),
        _claim(8.5, _started(JOB, fence=3), process="worker-2-1"),
    ]
    faults = [Fault(5.0, "kill", "worker-1-1"), Fault(6.0, "deploy", "worker-2-1")]
    assert list(recovery_seconds(calls, faults)) == [2.5]


def test_percentiles_are_of_what_happened() -> None:
    assert Recovery.of([]) == Recovery(kills=0, p50=0, p99=0, longest=0)
    assert Recovery.of(float(n) for n in range(100)) == Recovery(
        kills=100, p50=50, p99=99, longest=99
    )


def test_health_is_that_of_the_best_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr("gantline.proving.faults.monotonic", lambda: float(next(times)))
    health = Health()  # at 0
    health.hinder("a", "start")
    health.free("a", "start")  # from 1 on
    health.hinder("b", "start")
    health.hinder("a", "freeze")  # at 2
    health.free("a", "freeze")  # from 3 on
    assert health.healthy_seconds(0, 10) == 1 + 7
    assert health.healthy_seconds(1.5, 2.5) == 0.5


@pytest.mark.parametrize(
    ("url", "through"),
    [
        (
            "postgresql://user:p%40ss@db.example:5433/app?schema=proof",
            "postgresql://user:p%40ss@db.example:9/app"
            "?schema=proof&connections=3&hostaddr=127.0.0.1",
        ),
        (
            "redis://:secret@cache/2?prefix=proof&connections=5",
            "redis://:secret@127.0.0.1:9/2?prefix=proof&connections=5",
        ),
    ],
)
def test_a_server_is_reached_through_the_proxy(url: str, through: str) -> None:
    route = find_route(url)
    assert (route.host, route.port) in [("db.example", 5433), ("cache", 6379)]
    assert route.through(9) == through


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:////tmp/a.db", "a file"),
        ("rediss://cache/0", "TLS"),
        ("redis+cluster://a,b/0", "several servers"),
        ("redis://a,b/0", "several servers"),
        ("redis+unix:///run/redis.sock", "no host"),
        ("postgresql:///app", "no host"),
        ("postgresql://db/app?service=main", "option service"),
        ("other://db/app", "not known"),
    ],
)
def test_why_connections_are_not_harmed_is_said(url: str, why: str) -> None:
    route = find_route(url)
    assert not route.has_proxy
    assert why in route.why_none


def test_a_relative_file_is_the_same_for_processes_in_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_route("sqlite:///a.db?sync=full").url == f"sqlite:///{tmp_path}/a.db?sync=full"


def test_the_checker_knows_the_policies_that_the_application_declares(tmp_path: Path) -> None:
    jobs = make_application(MemoryStore(clock=SystemClock()), Ear(tmp_path, "none"))
    assert {one.name: one.handler.policy for one in jobs.job_types} == POLICIES
