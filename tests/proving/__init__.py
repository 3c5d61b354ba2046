"""`gantline prove`."""
