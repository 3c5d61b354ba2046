"""Seeded bugs: what the proof is tested with. Each is put in, and must be caught.

python -m tests.seeded_bugs [--only NAME …] [--part PART …] [--most-seconds N]
"""
