"""All mutants: the generated ones, then those written by hand."""

from functools import cache

from tests.mutants.generated import generate_all
from tests.mutants.mutant import Mutant
from tests.mutants.postgres_mutants import POSTGRES_MUTANTS
from tests.mutants.redis_mutants import REDIS_MUTANTS


@cache
def all_mutants() -> dict[str, Mutant]:
    """By name. Those that are generated take some seconds."""
    mutants = (*generate_all(), *POSTGRES_MUTANTS, *REDIS_MUTANTS)
    found = {mutant.name: mutant for mutant in mutants}
    assert len(found) == len(mutants), "a name is there twice"
    return found
