"""Error responses of hosts -> a `Problem` that every dialect can render."""
