"""The table of faults: everything that hosts were seen to do wrong, by name."""
