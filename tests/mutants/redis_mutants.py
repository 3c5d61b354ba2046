"""."""

from tests.mutants.mutant import Mutant

REDIS_MUTANTS: tuple[Mutant, ...] = ()
