"""`steady`: a worker at full speed for minutes, with and without removing what is old."""
