"""What a change of the hot path did: its speed beside another revision, and its length in calls."""
