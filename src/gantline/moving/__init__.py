"""Moving all that a store holds into another one."""
