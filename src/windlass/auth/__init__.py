"""Who somebody is, and what he may do. Knows no web framework: the API hands it plain values."""
