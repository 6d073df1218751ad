"""Anthropic Messages, the protocol of Claude Code: requests, streams, complete messages, errors."""
