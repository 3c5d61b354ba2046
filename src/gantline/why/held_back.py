"""What limits hold a job back: its group or its type is full, or its gate lets nothing through."""

from collections.abc import Sequence
from datetime import datetime
from shlex import quote
from typing import Final
from uuid import UUID

from gantline.contract.flow import Gate
from gantline.contract.query import JobFilter
from gantline.contract.snapshot import JobSnapshot
from gantline.contract.status import JobStatus
from gantline.contract.store import JobReader
from gantline.flow.limit import rate_text, read_rate
from gantline.flow.limits import Limits, opens_at
from gantline.why.reason import Reason, counted, when

_MOST_RUNS: Final = 1000
"""How many of the runs of a type are read; of more, a group may look less full than it is."""
_MOST_NAMED: Final = 5


class GroupFull(Reason, frozen=True, kw_only=True, tag="GROUP_FULL"):
    job_type: str
    group: str
    """Empty where the tenant is the group."""
    limit: int
    running: int
    jobs: tuple[UUID, ...]
    """Some of those that run."""

    def text(self, now: datetime) -> str:
        whose = f"of the group {self.group!r}" if self.group else "of its tenant"
        runs = f"{counted(self.running, 'job')} {whose} {'runs' if self.running == 1 else 'run'}"
        named = ", ".join(map(str, self.jobs))
        more = self.running - len(self.jobs)
        others = f" and {more} more" if more > 0 else ""
        return f"{runs}, and no more than {self.limit} may at once: {named}{others}."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        name = quote(self.job_type)
        return (
            f"Which groups wait: gantline limit groups {name}",
            f"Allow more: gantline limit set {name} --running {self.limit + 1}",
        )


class TypeFull(Reason, frozen=True, kw_only=True, tag="TYPE_FULL"):
    job_type: str
    limit: int
    running: int

    def text(self, now: datetime) -> str:
        are = "runs" if self.running == 1 else "run"
        jobs = f"{counted(self.running, 'job')} of the type {self.job_type!r}"
        return f"{jobs} {are}, and no more than {self.limit} may at once."

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        name = quote(self.job_type)
        return (
            f"What runs: gantline job list --status running --type {name}",
            f"Allow more: gantline limit set {name} --running-in-all {self.limit + 1}",
        )


class GateClosed(Reason, frozen=True, kw_only=True, tag="GATE_CLOSED"):
    job_type: str
    gate: str
    until: datetime
    rate: str
    throttled: bool
    """Whether a run closed it; else it is its rate."""

    def text(self, now: datetime) -> str:
        if self.throttled:
            return (
                f"The gate {self.gate!r} is closed until {when(self.until, now)}, since a run was "
                "asked to wait."
            )
        return (
            f"The gate {self.gate!r} lets {self.rate} through, and others were first; there is "
            f"room again {when(self.until, now)}."
        )

    def next_steps(self, job_id: UUID) -> Sequence[str]:
        name = quote(self.job_type)
        steps = ("All gates: gantline limit gates",)
        if self.throttled:
            return (*steps, f"If that is wrong: gantline limit set {name} --gate ANOTHER-NAME")
        faster = rate_text(2 * read_rate(self.rate))
        return (*steps, f"Allow more: gantline limit set {name} --rate {faster}")


LimitReason = GroupFull | TypeFull | GateClosed


async def held_back(
    store: JobReader,
    limits: Limits,
    job: JobSnapshot,
    now: datetime,
    *,
    sees_tenant: bool,
    sees_all: bool,
) -> list[LimitReason]:
    """Say which limits hold a due job back, as far as the caller may know.

    How many of a type run, and how busy a gate is, says what other tenants do. That a run has
    closed a gate is as a switch that an operator has turned off. Runs that began before a limit was
    set may not count against it on every store.
    """
    name = job.job.job_type
    flow = limits.holding(name)
    if flow is None:
        return []
    found: list[LimitReason] = []
    if flow.running is not None and sees_tenant:
        running = await _running_of_group(store, job)
        if len(running) >= flow.running:
            found.append(
                GroupFull(
                    job_type=name,
                    group=job.job.group,
                    limit=flow.running,
                    running=len(running),
                    jobs=tuple(running[:_MOST_NAMED]),
                )
            )
    if flow.running_in_all is not None and sees_all:
        lanes = await store.counts(tenant_id=None)
        in_all = sum(lane.running for lane in lanes if lane.job_type == name)
        if in_all >= flow.running_in_all:
            found.append(TypeFull(job_type=name, limit=flow.running_in_all, running=in_all))
    if flow.gate is not None:
        closed = await _closed(store, name, flow.gate, now)
        if closed is not None and (sees_all or closed.throttled):
            found.append(closed)
    return found


async def _running_of_group(store: JobReader, job: JobSnapshot) -> list[UUID]:
    like_it = JobFilter(
        tenant_id=job.job.tenant_id,
        statuses=frozenset({JobStatus.RUNNING}),
        job_types=frozenset({job.job.job_type}),
    )
    page = await store.find(like_it, limit=_MOST_RUNS)
    return [one.job.job_id for one in page.items if one.job.group == job.job.group]


async def _closed(store: JobReader, job_type: str, gate: Gate, now: datetime) -> GateClosed | None:
    (state,) = await store.gates([gate.name])
    until = opens_at(gate, state, now)
    if until <= now:
        return None
    throttled = until == state.closed_until
    rate = rate_text(gate.per_second)
    return GateClosed(
        job_type=job_type, gate=gate.name, until=until, rate=rate, throttled=throttled
    )
