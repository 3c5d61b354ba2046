"""The examples do what they show."""
