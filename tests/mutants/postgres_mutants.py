"""."""

from tests.mutants.mutant import Mutant

POSTGRES_MUTANTS: tuple[Mutant, ...] = ()
