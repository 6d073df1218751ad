"""Canonical, dialect-neutral values: the conversation, response events, options."""
