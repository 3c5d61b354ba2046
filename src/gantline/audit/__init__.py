"""The audit trail: what somebody did or was refused, in a chain that shows every later change."""
