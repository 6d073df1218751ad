"""History messages -> messages that the host accepts."""
