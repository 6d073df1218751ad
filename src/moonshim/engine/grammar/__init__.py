"""Marker grammars: model text -> visible text, and the tool calls in it."""
