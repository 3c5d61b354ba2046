"""Fuzzing: whatever comes from outside is answered, in bounded time and memory."""
