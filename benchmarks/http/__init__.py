"""What the HTTP API costs: submitting and asking for a status, beside a route that does nothing."""
