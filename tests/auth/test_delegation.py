"""Nobody gives away more than he has."""

from typing import Any

import pytest

from gantline.auth.action import Action
from gantline.auth.api_key import KeyGrant, may_grant
from gantline.auth.principal import Principal, Role
from gantline.auth.rate_limit import RateLimit

READ = frozenset({Action.READ})


def who(role: Role | None = None, **fields: Any) -> Principal:
    roles = frozenset({role} if role else ())
    return Principal(**{"id": "me", "tenant_id": "a", "roles": roles} | fields)


def key(role: Role | None = None, **fields: Any) -> KeyGrant:
    roles = frozenset({role} if role else ())
    return KeyGrant(**{"name": "new", "tenant_id": "a", "roles": roles} | fields)


ADMIN = who(Role.ADMIN)
SYSTEM = who(Role.ADMIN, is_system=True)


@pytest.mark.parametrize(
    ("principal", "grant"),
    [
        (ADMIN, key()),
        (ADMIN, key(Role.ADMIN)),
        (ADMIN, key(Role.VIEWER, scopes=READ, job_types=frozenset({"t"}))),
        (ADMIN, key(subjects=frozenset({"s1"}))),
        (SYSTEM, key(Role.ADMIN, tenant_id="b", is_system=True)),
        (who(Role.ADMIN, scopes=READ), key(Role.ADMIN, scopes=READ)),
        (who(subjects=frozenset({"s1", "s2"})), key(subjects=frozenset({"s1"}))),
        (ADMIN, key(rate_limit=RateLimit(5.0, 5))),
        (who(rate_limit=RateLimit(5.0, 5)), key(rate_limit=RateLimit(5.0, 4))),
    ],
)
def test_what_one_has_can_be_given(principal: Principal, grant: KeyGrant) -> None:
    assert may_grant(principal, grant)


@pytest.mark.parametrize(
    ("principal", "grant"),
    [
        (ADMIN, key(tenant_id="b")),
        (ADMIN, key(is_system=True)),
        (who(Role.OPERATOR), key(Role.ADMIN)),
        (who(), key(Role.VIEWER)),
        (who(Role.ADMIN, scopes=READ), key(Role.ADMIN)),
        (who(Role.ADMIN, scopes=READ), key(Role.ADMIN, scopes=frozenset({Action.CANCEL}))),
        (who(Role.ADMIN, job_types=frozenset({"t"})), key()),
        (who(Role.ADMIN, job_types=frozenset({"t"})), key(job_types=frozenset({"t", "u"}))),
        (who(subjects=frozenset({"s1"})), key(subjects=frozenset({"s2"}))),
        (who(rate_limit=RateLimit(5.0, 5)), key()),
        (who(rate_limit=RateLimit(5.0, 5)), key(rate_limit=RateLimit(6.0, 5))),
        (who(rate_limit=RateLimit(5.0, 5)), key(rate_limit=RateLimit(5.0, 6))),
    ],
)
def test_what_one_has_not_cannot_be_given(principal: Principal, grant: KeyGrant) -> None:
    assert not may_grant(principal, grant)
