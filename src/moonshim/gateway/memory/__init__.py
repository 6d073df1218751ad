"""State that outlives a request: reasoning that clients drop, and stored Responses."""
