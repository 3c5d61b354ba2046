"""Proving: workers, clients and faults on a store of your own, and a verdict on its promises."""
