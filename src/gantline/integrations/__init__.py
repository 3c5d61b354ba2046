"""Web frameworks: the API and async endpoints in applications of their own."""
