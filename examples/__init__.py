"""Applications that run, and that CI runs."""
