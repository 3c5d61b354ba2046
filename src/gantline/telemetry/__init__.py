"""How a running system is watched: health, metrics, logs and traces."""
