"""The version of this package, in the one place that every layer may look at."""

__version__ = "0.1.0"
