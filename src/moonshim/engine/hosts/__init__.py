"""What each host and model generation needs: a table of facts, and the lookup of a profile."""
