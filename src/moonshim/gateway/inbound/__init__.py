"""A client's request -> authenticated, within its limits, read and decoded."""
