"""The examples do what they show, on every store and with every worker killed."""
