"""What the HTTP contract costs, beside a route that does nothing."""
