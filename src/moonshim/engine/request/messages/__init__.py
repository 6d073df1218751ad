"""The messages of a history -> messages that the host accepts."""
