"""The audit trail: what was done or refused, in a hash chain that shows every later change."""
