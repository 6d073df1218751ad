"""The first minute: the same conversation straight at a broken host and through Moonshim, side by side."""
