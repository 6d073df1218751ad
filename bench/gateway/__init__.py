"""Measures what the gateway costs beside a plain relay: `make bench-gateway`."""
