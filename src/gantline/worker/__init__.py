"""The runtime: claims jobs into free slots, runs handlers, keeps leases, settles runs."""
