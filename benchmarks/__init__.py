"""Measures of Gantline beside the limits of the databases that it runs on: `make bench`."""
