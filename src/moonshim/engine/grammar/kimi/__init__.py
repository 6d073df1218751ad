"""The grammars of the Kimi models, by generation."""
