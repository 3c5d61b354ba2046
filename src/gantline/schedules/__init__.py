"""Schedules: what is due by the clock is submitted, once, by one worker of the fleet."""
