"""Building blocks shared by several marker grammars."""
