"""Processes that start, watch and stop other processes: several workers, or one that reloads."""
