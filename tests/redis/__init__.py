"""Redis as a store: what the suite does not see."""
