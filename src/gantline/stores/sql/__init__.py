"""What the SQL stores share: not the statements, but what stands in the rows."""
