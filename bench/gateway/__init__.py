"""Measures what the gateway costs beside a plain relay and other gateways: `make bench-gateway`."""
