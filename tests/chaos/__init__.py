"""Faults of hosts, servers and deploys on a fleet of real processes, judged as `gantline prove`."""
