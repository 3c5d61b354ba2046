"""`postgres`: the PostgreSQL store beside other queues on the same server."""
