"""Groups: the number by which stores know them."""

from hypothesis import given
from hypothesis import strategies as st

from gantline.contract.flow import PLAIN, group_number
from gantline.contract.job import DEFAULT_TENANT

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_jobs_of_the_default_tenant_without_a_group_are_plain_and_no_others_are() -> None:
    assert group_number(DEFAULT_TENANT, "") == PLAIN == 0
    others = [("other", ""), (DEFAULT_TENANT, "a"), ("", ""), ("", DEFAULT_TENANT)]
    assert PLAIN not in [group_number(*one) for one in others]


@given(NAMES, NAMES)
def test_the_number_of_a_group_fits_into_a_signed_integer_and_is_always_the_same(
    tenant: str, group: str
) -> None:
    number = group_number(tenant, group)
    assert 0 <= number < 2**63
    group_number.cache_clear()
    assert group_number(tenant, group) == number


def test_the_number_of_a_group_never_changes_since_stores_keep_it() -> None:
    assert group_number("default", "account-7") == 1_978_323_566_859_155_941
    assert group_number("acme", "") == 9_133_759_676_737_427_925


@given(st.sets(st.tuples(NAMES, NAMES), max_size=50))
def test_groups_of_other_names_and_tenants_have_other_numbers(groups: set[tuple[str, str]]) -> None:
    assert len({group_number(*one) for one in groups}) == len(groups)


def test_a_name_is_not_continued_by_the_next_one() -> None:
    assert group_number("ab", "c") != group_number("a", "bc")
    assert group_number("1", "1:a") != group_number("11", ":a")
