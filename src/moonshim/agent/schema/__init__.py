"""Python functions -> JSON schemas of their parameters, and readers of their arguments."""
