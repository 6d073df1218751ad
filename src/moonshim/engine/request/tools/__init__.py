"""Tool definitions and tool choice -> definitions and a choice that the host accepts."""
