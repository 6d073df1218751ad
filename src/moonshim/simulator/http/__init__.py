"""The simulator's HTTP server: paths, request bodies, responses with the latency of a model."""
