"""A host's response, streamed or whole -> the response that the client gets."""
