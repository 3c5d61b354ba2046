"""Why a job waits: what hinders it, from what is stored."""
