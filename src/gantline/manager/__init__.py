"""The lifecycle: the only place that decides. It knows the store protocol and no store."""
