"""A deterministic simulation of whole systems: one seed is one run, to the last byte."""
