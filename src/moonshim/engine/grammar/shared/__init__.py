"""What several marker grammars have in common."""
