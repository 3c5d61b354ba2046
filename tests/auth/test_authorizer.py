"""Who may do what by default: told by a table, and the same in lists as in single calls."""

import asyncio
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantline.auth.action import INSTALLATION_WIDE, Action
from gantline.auth.authorizer import DefaultAuthorizer, Target
from gantline.auth.principal import Principal, Role
from gantline.contract.job import Job
from gantline.contract.query import JobFilter, Visibility
from gantline.stores.memory import MemoryStore
from gantline.testing.clock import FakeClock
from gantline.testing.factories import make_new

AUTHORIZER = DefaultAuthorizer()
STRICT = DefaultAuthorizer(subject_required=True)


def who(*roles: Role, **fields: Any) -> Principal:
    return Principal(**{"id": "me", "tenant_id": "a", "roles": frozenset(roles)} | fields)


PRINCIPALS = {
    "nobody special": who(),
    "granted s1": who(subjects=frozenset({"s1"})),
    "viewer": who(Role.VIEWER),
    "operator": who(Role.OPERATOR),
    "admin": who(Role.ADMIN),
    "system operator": who(Role.OPERATOR, is_system=True),
    "system without a role": who(is_system=True),
}
TARGETS = {
    "mine": Target(tenant_id="a", job_type="t", owner="me"),
    "s1 of another": Target(tenant_id="a", job_type="t", subject_id="s1", owner="you"),
    "s2 of another": Target(tenant_id="a", job_type="t", subject_id="s2", owner="you"),
    "nobody's": Target(tenant_id="a", job_type="t"),
    "mine elsewhere": Target(tenant_id="b", job_type="t", owner="me"),
    "s1 elsewhere": Target(tenant_id="b", job_type="t", subject_id="s1", owner="you"),
}
OWN = {Action.READ, Action.READ_PAYLOAD, Action.CANCEL, Action.REDRIVE, Action.DELETE}
TOLD = {Action.STATISTICS, Action.READ_SCHEDULES}
HERE = {"mine", "s1 of another", "s2 of another", "nobody's"}
EVERYWHERE = frozenset(TARGETS)


def allowed(principal: str, action: Action) -> set[str]:
    """The table, in words. SUBMIT and READ_TYPES have tests of their own."""
    own = {"mine"} | ({"s1 of another"} if principal == "granted s1" else set())
    own = own if action in OWN else set()
    match principal:
        case "viewer":
            return HERE if action in {Action.READ} | TOLD else own
        case "operator":
            managed = {Action.MANAGE_WEBHOOKS, Action.MANAGE_SCHEDULES, Action.READ_ERRORS}
            return HERE if action in OWN | TOLD | managed else own
        case "admin":
            return own if action in INSTALLATION_WIDE else set(HERE)
        case "system operator":
            is_admins = action in (Action.SUBMIT_FOR, Action.MANAGE_KEYS, Action.READ_AUDIT)
            is_nobodys = action is Action.RUN
            return own if is_admins or is_nobodys else set(EVERYWHERE)
        case _:
            return own


ACTIONS = sorted(set(Action) - {Action.SUBMIT, Action.READ_TYPES})


@pytest.mark.parametrize(("principal", "action"), [*product(PRINCIPALS, ACTIONS)])
async def test_the_table(principal: str, action: Action) -> None:
    assert await targets_of(PRINCIPALS[principal], action) == allowed(principal, action)


async def targets_of(principal: Principal, action: Action) -> set[str]:
    return {
        name for name, target in TARGETS.items() if await AUTHORIZER.may(principal, action, target)
    }


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_everybody_submits_in_his_tenant_and_in_his_own_name(principal: str) -> None:
    elsewhere = {"mine elsewhere"} if principal == "system operator" else set()
    assert await targets_of(PRINCIPALS[principal], Action.SUBMIT) == {"mine"} | elsewhere


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_everybody_sees_the_types_of_his_tenant(principal: str) -> None:
    for tenant in ("a", "b"):
        may = await AUTHORIZER.may(
            PRINCIPALS[principal], Action.READ_TYPES, Target(tenant_id=tenant)
        )
        assert may is (tenant == "a" or principal == "system operator")


@pytest.mark.parametrize("action", Action)
async def test_a_scope_that_is_missing_takes_every_right_away(action: Action) -> None:
    everything = who(Role.ADMIN, is_system=True, scopes=frozenset(Action) - {action})
    assert await targets_of(everything, action) == set()
    assert AUTHORIZER.scope(everything, action).is_blind


@pytest.mark.parametrize("action", Action)
async def test_a_type_that_is_missing_takes_every_right_away(action: Action) -> None:
    everything = who(Role.ADMIN, is_system=True, job_types=frozenset({"other"}))
    assert await targets_of(everything, action) == set()


async def test_one_of_few_types_has_no_say_about_all_of_them() -> None:
    """He is told the counts of his types; what has no type, like keys, is not his."""
    few = who(Role.ADMIN, is_system=True, job_types=frozenset({"t"}))
    everything = Target(tenant_id="a")
    may = {action for action in Action if await AUTHORIZER.may(few, action, everything)}
    assert may == {*TOLD, Action.READ_TYPES}


async def test_an_empty_name_owns_nothing() -> None:
    """Jobs that nobody is known to have submitted are not those of somebody without a name."""
    empty = Principal(id="", tenant_id="a", subjects=frozenset({""}))
    nobodys = Target(tenant_id="a", job_type="t")
    assert not await AUTHORIZER.may(empty, Action.READ, nobodys)
    assert not AUTHORIZER.scope(empty, Action.READ).admits(Job(job_type="t", tenant_id="a"))


names = st.sampled_from(("", "me", "you", "s1", "s2"))
principals = st.builds(
    Principal,
    id=names,
    tenant_id=st.sampled_from(("a", "b")),
    roles=st.frozensets(st.sampled_from(Role), max_size=2),
    scopes=st.none() | st.frozensets(st.sampled_from(Action)),
    subjects=st.frozensets(names, max_size=3),
    job_types=st.none() | st.frozensets(st.sampled_from(("t", "u")), max_size=2),
    is_system=st.booleans(),
)
jobs = st.lists(
    st.builds(
        make_new,
        tenant_id=st.sampled_from(("a", "b")),
        job_type=st.sampled_from(("t", "u")),
        subject_id=names,
        created_by=names,
    ),
    max_size=12,
)
# To submit is asked before there is a job.
about_jobs = st.sampled_from([*ACTIONS, Action.READ_TYPES])


@given(principal=principals, action=about_jobs, some=jobs)
@settings(max_examples=400, deadline=None)
def test_lists_and_single_calls_agree(principal: Principal, action: Action, some: Any) -> None:
    """`scope` narrows lists, `may` decides about one job: neither knows more than the other."""
    asyncio.run(agree(principal, action, some))


async def agree(principal: Principal, action: Action, some: Any) -> None:
    store = MemoryStore(clock=FakeClock())
    await store.insert(some)
    seen = AUTHORIZER.scope(principal, action)
    for tenant in (None, "a", "b"):
        job_filter = JobFilter(tenant_id=tenant, visible_to=seen)
        listed = {job.job.job_id for job in (await store.find(job_filter, limit=100)).items}
        allowed_ones = {
            new.job.job_id
            for new in some
            if tenant in (None, new.job.tenant_id)
            and await AUTHORIZER.may(principal, action, Target.of(new.job))
        }
        assert listed == allowed_ones


def test_nobody_sees_another_tenant_by_asking_for_it() -> None:
    seen = AUTHORIZER.scope(who(Role.ADMIN), Action.READ)
    assert seen == Visibility(tenant_id="a")
    assert JobFilter(tenant_id="b", visible_to=seen).narrowed() is None


def test_with_a_subject_required_only_jobs_without_one_are_closed() -> None:
    """And only to those who have no role for it."""
    for (name, principal), action, target in product(PRINCIPALS.items(), Action, TARGETS.values()):
        lax = asyncio.run(AUTHORIZER.may(principal, action, target))
        strict = asyncio.run(STRICT.may(principal, action, target))
        has_role = bool(principal.roles) or action not in OWN
        is_closed = not target.subject_id and (action is Action.SUBMIT or not has_role)
        if name != "viewer":  # whose role opens reading alone
            assert strict == (lax and not is_closed), (name, action, target)
        assert lax or not strict
    about = Target(tenant_id="a", job_type="t", subject_id="s", owner="me")
    assert asyncio.run(STRICT.may(who(), Action.SUBMIT, about))
    assert STRICT.scope(who(), Action.READ).subject_required
    assert not STRICT.scope(who(Role.OPERATOR), Action.READ).subject_required
