"""What the SQL stores share: not the statements, but what the rows contain."""
