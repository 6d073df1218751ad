"""Answers, flags or the file of another gateway -> a new configuration file."""
