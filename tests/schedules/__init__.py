"""Tests of schedules: what fires when, and that one worker of a fleet fires it."""
