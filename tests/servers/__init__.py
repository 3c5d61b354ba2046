"""Real servers for tests: private ones, on free ports in temporary folders, that may be killed."""
