"""The PostgreSQL schema, step by step. Never edit a file that was released: add the next number."""
