"""A response -> payloads of a dialect -> frames of bytes."""
