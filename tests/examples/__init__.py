"""The examples: what they promise, on every store and with every worker killed."""
