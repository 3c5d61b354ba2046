"""All mutants: the generated ones, then those written by hand."""

from functools import cache
from typing import Final

from tests.mutants.generated import generate_all
from tests.mutants.mutant import Mutant
from tests.mutants.postgres_functions import IN_FUNCTIONS
from tests.mutants.postgres_statements import IN_STATEMENTS
from tests.mutants.redis_ending import IN_ENDING
from tests.mutants.redis_flow import IN_FLOW
from tests.mutants.redis_rest import IN_THE_REST
from tests.mutants.redis_running import IN_RUNNING

MUTANTS_BY_HAND: Final = (
    *(*IN_FUNCTIONS, *IN_STATEMENTS),
    *(*IN_RUNNING, *IN_ENDING, *IN_FLOW, *IN_THE_REST),
)


@cache
def all_mutants() -> dict[str, Mutant]:
    """By name. Those that are generated take some seconds."""
    mutants = (*generate_all(), *MUTANTS_BY_HAND)
    found = {mutant.name: mutant for mutant in mutants}
    assert len(found) == len(mutants), "a name is there twice"
    return found
