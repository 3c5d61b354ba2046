"""Event streams: what happens to jobs, sent while it happens to the clients that may see them."""
