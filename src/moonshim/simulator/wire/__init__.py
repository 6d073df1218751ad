"""An answer -> payloads of a dialect -> frames of bytes."""
