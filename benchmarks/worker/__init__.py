"""The worker, measured from outside: what it drains, how soon, and what it costs."""
