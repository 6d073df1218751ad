"""Marker grammars: text as a model wrote it -> what is said, and the calls that were meant."""
