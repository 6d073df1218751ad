"""Each table of a configuration file -> checked values."""
