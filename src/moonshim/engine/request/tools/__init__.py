"""Tool definitions and tool choice -> those that the host accepts."""
