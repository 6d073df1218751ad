"""Settings -> the processes that serve the gateway, and their reloads."""
