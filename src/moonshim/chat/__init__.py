"""`moonshim chat`: the agent on a terminal, and single answers for scripts."""
