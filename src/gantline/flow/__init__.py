"""Flow control: what limits a type of job declares, which of them hold, and what they keep back."""
