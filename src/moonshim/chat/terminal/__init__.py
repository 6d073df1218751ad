"""The terminal: what is typed, what is painted."""
