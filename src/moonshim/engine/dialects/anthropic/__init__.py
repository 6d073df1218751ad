"""Anthropic Messages, the protocol of Claude Code: requests, streams, whole messages, errors."""
