"""Durable consumers: who reads the log of all jobs, from a position of its own."""
