"""Tests of the lifecycle: the pure decisions, and the manager over the memory store."""
