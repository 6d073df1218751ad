"""The steps of a turn -> lines that can be printed safely."""
