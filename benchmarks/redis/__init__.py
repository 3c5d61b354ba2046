"""Redis: ours with each kind of persistence."""
