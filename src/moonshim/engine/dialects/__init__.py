"""Dialects: how each protocol writes requests, answers and errors. They never import each other."""
