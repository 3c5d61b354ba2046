"""Event streams: what happens to jobs, told while it happens to whoever may see them."""
