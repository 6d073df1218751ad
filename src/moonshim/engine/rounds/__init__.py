"""Several requests to a host inside one exchange with the client."""
