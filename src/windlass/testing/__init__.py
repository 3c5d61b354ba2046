"""What Windlass offers to tests: the conformance suite, a fake clock, factories, faults."""
