"""A contest: systems measured in turns on one server, each in processes of its own."""
