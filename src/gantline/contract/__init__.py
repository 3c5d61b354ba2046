"""What a job is: the contract that every other part looks down at. No I/O, no asyncio."""
