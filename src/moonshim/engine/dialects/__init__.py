"""Dialects: how each protocol writes requests, responses and errors. They never import each other."""
