"""What each host and model generation needs: a table of data, and the functions that make a request right for it."""
