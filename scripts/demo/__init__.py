"""A demo: the same conversation directly with a faulty host and through Moonshim, side by side."""
