"""Canonical values: the conversation, the events of a response, options; they belong to no dialect."""
